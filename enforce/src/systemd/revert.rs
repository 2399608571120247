//! What `SetUnitProperties` leaves behind: a drop-in for each property, kept until the machine reboots. After a
//! property was unset it says "not set", which would still hide what the unit's own file says later.
//!
//! Used by `evenkeel-agent restore` alone. A failure is harmless and ignored: the drop-in says nothing new.

use std::path::Path;

use super::property::Property;

/// Where drop-ins of ordinary and of transient units lie (systemd.unit(5), "Unit File Load Path").
const PLACES: [&str; 2] = ["/run/systemd/system.control", "/run/systemd/transient"];

/// Takes away the drop-ins of properties that were just unset.
pub(super) fn forget(unit: &str, properties: &[Property]) {
    forget_in(PLACES.map(Path::new), unit, properties);
}

fn forget_in(places: [&Path; 2], unit: &str, properties: &[Property]) {
    // Unit names have no slash; a cgroup's directory, from which they come, cannot have one either.
    for dir in places.map(|place| place.join(format!("{unit}.d"))) {
        for property in properties {
            let file = dir.join(format!("50-{}.conf", property.directive));
            if let Err(error) = std::fs::remove_file(&file)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::debug!(file = %file.display(), %error, "ignoring a drop-in that could not be removed");
            }
        }
        // Only when it is empty now.
        let _ = std::fs::remove_dir(&dir);
    }
}

#[cfg(test)]
mod tests {
    use super::super::property::PropertyValue;
    use super::*;

    #[test]
    fn only_drop_ins_of_the_properties_go() {
        let at = tempfile::tempdir().unwrap();
        let dir = at.path().join("db.service.d");
        std::fs::create_dir(&dir).unwrap();
        for name in ["50-CPUWeight.conf", "50-IPAddressAllow.conf"] {
            std::fs::write(dir.join(name), "x").unwrap();
        }
        let weight =
            Property { name: "CPUWeight", directive: "CPUWeight", value: PropertyValue::Number(u64::MAX) };
        forget_in([at.path(), Path::new("/nonexistent")], "db.service", &[weight]);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::remove_file(dir.join("50-IPAddressAllow.conf")).unwrap();
        forget_in([at.path(), Path::new("/nonexistent")], "db.service", &[]);
        assert!(!dir.exists());
    }
}
