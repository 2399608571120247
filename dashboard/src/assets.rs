//! The style sheet and the script, each under a name that changes with its content, so that browsers may keep it.

/// A file that pages load.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// The name without the mark of its content.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Its content.
    pub content: &'static str,
}

/// The style sheet.
pub const STYLE: Asset = Asset {
    name: "style.css",
    kind: "text/css; charset=utf-8",
    content: include_str!("../assets/style.css"),
};
/// The script. Pages say all they say without it.
pub const SCRIPT: Asset = Asset {
    name: "app.js",
    kind: "text/javascript; charset=utf-8",
    content: include_str!("../assets/app.js"),
};
/// The icon.
pub const ICON: Asset =
    Asset { name: "icon.svg", kind: "image/svg+xml", content: include_str!("../assets/icon.svg") };
const ALL: [Asset; 3] = [STYLE, SCRIPT, ICON];

impl Asset {
    /// Where a page loads it from.
    #[must_use]
    pub fn address(&self) -> String {
        format!("/ui/assets/{}", self.file())
    }

    /// The name under which it is served: `MARK-NAME`.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{:016x}-{}", mark(self.content.as_bytes()), self.name)
    }
}

/// The asset that is served under a name.
#[must_use]
pub fn find(file: &str) -> Option<Asset> {
    ALL.into_iter().find(|asset| asset.file() == file)
}

/// FNV-1a, 64 bits: it tells contents of ours apart, and keeps no secret.
const fn mark(content: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < content.len() {
        hash = (hash ^ content[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asset_is_found_by_its_name_and_content() {
        for asset in ALL {
            assert_eq!(find(&asset.file()).map(|found| found.name), Some(asset.name));
            assert!(find(asset.name).is_none(), "{} without its mark may be an older one", asset.name);
        }
    }

    #[test]
    fn assets_are_small_and_name_no_other_host() {
        let size: usize = ALL.iter().map(|asset| asset.content.len()).sum();
        assert!(size < 60_000, "{size} bytes");
        for asset in ALL {
            let text = asset.content.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !text.contains("http:") && !text.contains("https:") && !text.contains("//cdn"),
                "{}",
                asset.name
            );
            assert!(!text.contains("eval(") && !text.contains("innerHTML"), "{}", asset.name);
        }
    }
}
