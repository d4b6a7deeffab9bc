//! Reads the texts of `/proc` and `/sys`. Nothing here trusts them.

/// Major and minor number of a kernel release such as `6.18.44-generic`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The effective capabilities in `/proc/self/status`, one bit each.
pub(super) fn effective_capabilities(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim();
    u64::from_str_radix(value, 16).ok()
}

/// Whether this `/proc/self/uid_map` is that of the initial user namespace: all users are themselves.
pub(super) fn is_initial_user_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// What `/sys/kernel/security/lockdown` marks as in force.
pub(super) fn lockdown(text: &str) -> Option<&str> {
    let (_, marked) = text.split_once('[')?;
    marked.split_once(']').map(|(mode, _)| mode)
}

/// Where `/proc/self/mounts` has a tracefs mounted: the first place.
pub(super) fn tracefs(mounts: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "tracefs").then(|| unescape(place))
    })
}

/// The kernel writes blanks and backslashes of a path as octal numbers.
fn unescape(place: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(place.to_owned(), |place, (escaped, plain)| place.replace(escaped, plain))
}

/// The one number of a sysctl.
pub(super) fn number(text: &str) -> Option<i64> {
    numbers(text).map(|[number]| number)
}

/// The numbers of a sysctl that has `N` of them.
pub(super) fn numbers<const N: usize>(text: &str) -> Option<[i64; N]> {
    let numbers: Option<Vec<i64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// The window scale that the kernel offers where a receive buffer may grow to `space` bytes.
pub(super) fn window_scale(space: i64) -> u32 {
    u64::try_from(space).ok().and_then(u64::checked_ilog2).unwrap_or(0).saturating_sub(15).min(14)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn releases() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.4.0"), Some((5, 4)));
        assert_eq!(version("7.0-rc3"), Some((7, 0)));
        assert_eq!(version("6.16+"), Some((6, 16)));
        for odd in ["", "6", "6.", "x.y", ".5", "-1.2", "99999999999.1"] {
            assert_eq!(version(odd), None, "{odd}");
        }
    }

    #[test]
    fn capabilities() {
        let status = "Name:\tautotune\nCapPrm:\t0000000000000001\nCapEff:\t000001fffeffffff\n";
        assert_eq!(effective_capabilities(status), Some(0x1ff_feff_ffff));
        assert_eq!(effective_capabilities("CapEff:\t\n"), None);
        assert_eq!(effective_capabilities("CapEff:\tffffffffffffffffff\n"), None);
        assert_eq!(effective_capabilities("CapPrm:\t0\n"), None);
    }

    #[test]
    fn user_namespaces() {
        assert!(is_initial_user_namespace("         0          0 4294967295\n"));
        assert!(!is_initial_user_namespace("         0       1000          1\n"));
        assert!(!is_initial_user_namespace("0 0 65536\n65536 165536 4294901759\n"));
        assert!(!is_initial_user_namespace(""));
    }

    #[test]
    fn lockdowns() {
        assert_eq!(lockdown("[none] integrity confidentiality\n"), Some("none"));
        assert_eq!(lockdown("none integrity [confidentiality]\n"), Some("confidentiality"));
        assert_eq!(lockdown("none integrity\n"), None);
        assert_eq!(lockdown("]none[\n"), None);
    }

    #[test]
    fn mounts() {
        let mounts = "proc /proc proc rw 0 0\n\
                      tracefs /a\\040b\\134c tracefs rw,nosuid 0 0\n\
                      tracefs /later tracefs rw 0 0\n";
        assert_eq!(tracefs(mounts).as_deref(), Some("/a b\\c"));
        assert_eq!(tracefs("tracefs /sys/kernel/tracing ext4 rw 0 0\n"), None);
        assert_eq!(tracefs("tracefs\n\n"), None);
    }

    #[test]
    fn sysctls() {
        assert_eq!(numbers("4096\t131072\t6291456\n"), Some([4096, 131_072, 6_291_456]));
        assert_eq!(numbers::<3>("4096\t131072\n"), None);
        assert_eq!(numbers::<3>("1 2 3 4"), None);
        assert_eq!(numbers::<3>("1 2 x"), None);
        assert_eq!(number("1\n"), Some(1));
        assert_eq!(number("-1\n"), Some(-1));
        assert_eq!(number(""), None);
    }

    #[test]
    fn window_scales() {
        // ilog2(space) - 15, within 0 and 14.
        for (space, scale) in [
            (i64::MIN, 0),
            (0, 0),
            (65_535, 0),
            (65_536, 1),
            (6_291_456, 7),
            (33_554_432, 10),
            (2_147_483_647, 14),
            (i64::MAX, 14),
        ] {
            assert_eq!(window_scale(space), scale, "{space}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}", space in any::<i64>()) {
            let _ = version(&text);
            let _ = effective_capabilities(&text);
            let _ = is_initial_user_namespace(&text);
            let _ = lockdown(&text);
            let _ = tracefs(&text);
            let _ = number(&text);
            let _ = numbers::<3>(&text);
            prop_assert!(window_scale(space) <= 14);
        }

        #[test]
        fn almost_valid_text_does_not_panic(text in "[0-9 .\\t\\n\\[\\]:\\\\x-]{0,60}") {
            let _ = version(&text);
            let _ = effective_capabilities(&format!("CapEff:{text}"));
            let _ = lockdown(&text);
            let _ = tracefs(&format!("tracefs {text} tracefs rw 0 0"));
            let _ = numbers::<3>(&text);
        }
    }
}
