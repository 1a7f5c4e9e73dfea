//! The processes of a control group.
//!
//! # Guarantee
//! Those are found that were in the group, or in one below it, while its lists were read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where groups are shown.
const ROOT: &str = "/sys/fs/cgroup";

/// The list of a group's processes.
const PROCESSES: &str = "cgroup.procs";

/// Returns the numbers of the processes of a group and of all below it. A path that does not lead to a group by itself
/// lies below `/sys/fs/cgroup`, as `/proc/PID/cgroup` names it.
pub(crate) fn members(path: &Path) -> io::Result<Vec<i32>> {
    let mut pids = Vec::new();
    collect(&folder_of(path), &mut pids)?;
    Ok(pids)
}

fn folder_of(path: &Path) -> PathBuf {
    if path.is_absolute() && path.join(PROCESSES).exists() {
        return path.to_owned();
    }
    Path::new(ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

fn collect(folder: &Path, pids: &mut Vec<i32>) -> io::Result<()> {
    let text = fs::read_to_string(folder.join(PROCESSES))?;
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for entry in fs::read_dir(folder)?.flatten() {
        // A group below may be removed at any time.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = collect(&entry.path(), pids);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_its_members_and_those_of_the_groups_below() {
        let folder = std::env::temp_dir().join(format!("faultless-cgroup-{}", std::process::id()));
        fs::create_dir_all(folder.join("below")).expect("a folder for temporary files");
        fs::write(folder.join(PROCESSES), "7\n8\n").expect("it is ours");
        fs::write(folder.join("below").join(PROCESSES), "9\n").expect("it is ours");
        let found = members(&folder);
        fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(found.expect("it exists"), [7, 8, 9]);
        assert!(members(Path::new("no/such/group")).is_err());
    }
}
