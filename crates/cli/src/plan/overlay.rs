//! The options `--overlay`, `--overlay-size` and `--overlay-from`, checked before the start.

use crate::args::DaemonOptions;
use vfield_block::device::GRANULE_BYTES;
use vfield_console::failure::Failure;
use vfield_console::values::size::human;
use vfield_daemon::plan::overlay::OverlayPlan;
use vfield_daemon::values::overlay::OverlayPlace;
use vfield_machine::memory;

/// What `options` ask for, if they ask for an overlay.
pub fn plan(options: &DaemonOptions) -> Result<Option<OverlayPlan>, Failure> {
    let from = options.overlay_from.clone();
    let Some(place) = options.overlay.clone() else {
        let alone = [("--overlay-size", options.overlay_size.is_some()), ("--overlay-from", !from.is_empty())];
        return match alone.into_iter().find(|(_, given)| *given) {
            None => Ok(None),
            Some((option, _)) => Err(Failure::usage(format!("{option} needs an overlay"))
                .hint("choose a place for changes: --overlay ram, or --overlay DIR")),
        };
    };
    let size = options.overlay_size.map(|size| size.0);
    if let Some(bytes) = size.filter(|bytes| *bytes < u64::from(GRANULE_BYTES)) {
        let fact = format!("--overlay-size: {bytes} bytes cannot hold one change");
        return Err(Failure::usage(fact).hint(format!("sizes have units: --overlay-size {bytes}M is {bytes} MiB")));
    }
    let max_bytes = match place {
        OverlayPlace::Dir(_) => size,
        OverlayPlace::Ram => Some(in_memory(size, memory::most_bytes())?),
    };
    Ok(Some(OverlayPlan { place, max_bytes, from, carries_root: options.root }))
}

/// How much may be kept in memory: as much as was asked for, or half of what the machine has, as in
/// a tmpfs.
fn in_memory(asked: Option<u64>, memory_bytes: Option<u64>) -> Result<u64, Failure> {
    let memory = memory_bytes.unwrap_or(u64::MAX);
    match asked {
        None => Ok(memory / 2),
        Some(bytes) if bytes <= memory => Ok(bytes),
        Some(bytes) => {
            let fact =
                format!("--overlay-size: {} is more than this daemon's memory of {}", human(bytes), human(memory));
            Err(Failure::usage(fact).hint("choose a smaller size, or a directory: --overlay DIR"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use vfield_console::values::size::Size;

    fn planned(place: Option<&str>, size: Option<u64>, from: &[&str]) -> Result<Option<OverlayPlan>, String> {
        let options = DaemonOptions {
            overlay: place.map(|place| place.parse().unwrap()),
            overlay_size: size.map(Size),
            overlay_from: from.iter().map(PathBuf::from).collect(),
            ..DaemonOptions::default()
        };
        super::plan(&options).map_err(|failure| failure.fact().to_owned())
    }

    #[test]
    fn an_overlay_is_asked_for_with_a_place() {
        assert_eq!(planned(None, None, &[]), Ok(None));
        assert_eq!(planned(None, Some(1 << 20), &[]).unwrap_err(), "--overlay-size needs an overlay");
        assert_eq!(planned(None, None, &["x"]).unwrap_err(), "--overlay-from needs an overlay");
        let dir = planned(Some("/d"), None, &["x", "y"]).unwrap().unwrap();
        assert_eq!((dir.max_bytes, dir.from.len()), (None, 2));
    }

    #[test]
    fn what_is_kept_in_memory_fits_into_it() {
        assert!(planned(Some("ram"), None, &[]).unwrap().unwrap().max_bytes.is_some());
        assert_eq!(
            planned(Some("ram"), Some(128), &[]).unwrap_err(),
            "--overlay-size: 128 bytes cannot hold one change"
        );
        assert_eq!(in_memory(None, Some(1 << 30)), Ok(1 << 29));
        assert_eq!(in_memory(Some(1 << 30), Some(1 << 30)), Ok(1 << 30));
        let failure = in_memory(Some(2 << 30), Some(1 << 30)).unwrap_err();
        assert_eq!(failure.fact(), "--overlay-size: 2.0 GiB is more than this daemon's memory of 1.0 GiB");
    }
}
