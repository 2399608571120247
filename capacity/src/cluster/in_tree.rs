//! Volumes of kinds that were once built into Kubernetes: which driver serves them now, and how that names them.
//!
//! Their attachments count against the limits of that driver (`nodevolumelimits/csi.go`; names and handles are those of
//! csi-translation-lib). Only kinds for which the scheduler always assumes so are known here.

use crate::object::{HostDisk, StringMap, Volume, VolumeSpec};

/// Provisioners that were built in, and the drivers that took over.
const TAKEN_OVER: [(&str, &str); 4] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
];
/// Labels of a volume's zone, by their present and their old name.
const ZONES: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
/// Zone of a disk for which none is known.
const UNSPECIFIED: &str = "UNSPECIFIED";

/// Driver and handle.
pub(super) type Translated = (&'static str, String);

/// The driver that attaches volumes of a provisioner.
pub(super) fn driver_of(provisioner: &str) -> &str {
    TAKEN_OVER.iter().find(|(built_in, _)| *built_in == provisioner).map_or(provisioner, |(_, driver)| driver)
}

/// Driver and handle of a persistent volume of such a kind.
pub(super) fn of_persistent(spec: &VolumeSpec, labels: &StringMap) -> Option<Translated> {
    let zone = ZONES.iter().find_map(|label| labels.get(*label)).map_or(UNSPECIFIED, String::as_str);
    let disks = [
        spec.aws_elastic_block_store.as_ref(),
        spec.gce_persistent_disk.as_ref(),
        spec.azure_disk.as_ref(),
        spec.cinder.as_ref(),
    ];
    translated(disks, zone, true)
}

/// Driver and handle of a volume that a pod names itself.
pub(super) fn of_pod(volume: &Volume) -> Option<Translated> {
    let disks = [
        volume.aws_elastic_block_store.as_deref(),
        volume.gce_persistent_disk.as_deref(),
        volume.azure_disk.as_deref(),
        volume.cinder.as_deref(),
    ];
    translated(disks, UNSPECIFIED, false)
}

/// One of these, in the order of [`TAKEN_OVER`].
fn translated(disks: [Option<&HostDisk>; 4], zone: &str, persistent: bool) -> Option<Translated> {
    let (at, disk) = disks.iter().enumerate().find_map(|(at, disk)| Some((at, (*disk)?)))?;
    let handle = match at {
        // aws://ZONE/ID, or the id alone.
        0 if persistent => disk.volume_id.rsplit('/').next().unwrap_or_default().to_owned(),
        1 => google(&disk.pd_name, zone),
        2 => disk.disk_uri.clone(),
        _ => disk.volume_id.clone(),
    };
    Some((TAKEN_OVER[at].1, handle))
}

/// A disk of one zone, or of a region where its label lists several zones.
fn google(disk: &str, zone: &str) -> String {
    match zone.split_once("__") {
        None => format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{disk}"),
        Some((first, _)) => {
            let region = first.rsplit_once('-').map_or(first, |(region, _)| region);
            format!("projects/{UNSPECIFIED}/regions/{region}/disks/{disk}")
        }
    }
}
