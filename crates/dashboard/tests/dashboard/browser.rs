//! The page in a real browser: what it shows, that names are text, its keys, and its size.

use crate::room::{HOSTILE, Room};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use vfield_lab::browser::{self, Browser};

const DESK: (u32, u32) = (1360, 1100);
const TELEPHONE: (u32, u32) = (390, 844);

/// A room of so many nodes and a browser that shows it; `None` without a browser.
struct Shown {
    browser: Browser,
    addr: SocketAddr,
    serving: AbortHandle,
    _runtime: Runtime,
}

impl Shown {
    fn of(nodes: u64, screen: (u32, u32), dark: bool) -> Option<Self> {
        let browser = Browser::start(&browser::find()?);
        let runtime = Runtime::new().unwrap();
        let (addr, serving) = runtime.block_on(async { Room::of(nodes).serve().await });
        let mut shown = Self { browser, addr, serving, _runtime: runtime };
        shown.browser.open(&format!("http://{addr}/"), screen, dark);
        // Two answers make a rate.
        shown.browser.until("document.querySelectorAll('#chart path').length > 0 || document.querySelector('#rates .peer dd')?.textContent.includes('MiB/s')");
        Some(shown)
    }

    fn text(&mut self, selector: &str) -> String {
        let value = self.browser.value(&format!("document.querySelector({selector:?})?.textContent ?? ''"));
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Keeps a picture for a person, among the files of the build.
    fn keep(&mut self, name: &str) {
        self.browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png")));
    }

    fn count(&mut self, selector: &str) -> u64 {
        self.browser.value(&format!("document.querySelectorAll({selector:?}).length")).as_u64().unwrap()
    }

    /// Asks the page whether anything sticks out to the right.
    fn sticks_out(&mut self) -> bool {
        let wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
        self.browser.value(wider) == true
    }
}

#[test]
fn a_person_sees_the_field_and_no_name_is_markup() {
    let Some(mut shown) = Shown::of(10, DESK, false) else { return };
    assert!(shown.text("#verdicts").contains("viver.squash (020202020202): the origin has to stay"));
    assert!(shown.text("#verdicts").contains(HOSTILE));
    assert!(shown.text("#news").contains(HOSTILE));
    assert_eq!(shown.count("img, iframe, object, embed, form"), 0);
    assert_ne!(shown.browser.value("document.title"), "owned");
    assert_eq!((shown.count("button.tile"), shown.count(".tile.gone"), shown.count(".tile.self")), (10, 1, 1));
    assert_eq!((shown.count(".tile.warn"), shown.count(".tile.bad")), (2, 1));
    // As `vfield status` tells of it. It is not well, and neither is a field with deaths.
    let slow = "192.168.1.7:4440 has a link of 96 Mbit/s, others 936: cable, port or load?";
    assert!(shown.text("#verdicts").contains(slow));
    assert!(shown.text("#counts").contains("2 in trouble, 1 slow, 1 died"), "{}", shown.text("#counts"));
    assert_eq!((shown.count(".band"), shown.count("canvas.stores")), (3, 3));
    // Part of the ring is in no store, part has one copy and more.
    for kind in ["hole", "claimed", "seen"] {
        assert_ne!(shown.browser.value(&format!("document.querySelector('.band .{kind}').getAttribute('d')")), "");
    }
    let waits = shown.text("#waits");
    assert!(waits.contains("this node waits for 192.168.1.4:4440"), "{waits}");
    assert!(waits.contains("12 answers under way, 3 of them for readers"), "{waits}");
    assert!(
        waits.contains("a reader of viver.squash (020202020202) waits for chunk 9")
            && waits.contains("no live node holds it")
    );
    shown.browser.until("!document.querySelector('#storm').hidden");
    assert!(shown.text("#storm").contains("9 machines of 9 fill their stores"));
    assert!(!shown.sticks_out());
    shown.keep("page-light");
    let own = format!("http://{}/", shown.addr);
    let elsewhere: Vec<_> =
        shown.browser.asked.iter().filter(|url| !url.starts_with(&own) && *url != "data:,").collect();
    assert!(elsewhere.is_empty() && shown.browser.asked.len() > 5, "{elsewhere:?}");
    assert!(shown.browser.complaints.is_empty(), "{:?}", shown.browser.complaints);
}

#[test]
fn tags_say_who_runs_what_and_the_version_before_is_no_trouble() {
    let Some(mut shown) = Shown::of(10, DESK, true) else { return };
    let tags = shown.text("#tags");
    assert!(tags.contains("40 % of the nodes follow to the newest"), "{tags}");
    assert!(tags.contains("now serial 5: viver.squash (020202020202)on 9 nodes, 4 of them filled"), "{tags}");
    assert!(tags.contains(&format!("before serial 4: {HOSTILE}on 9 nodes, 9 of them filled")), "{tags}");
    assert!(tags.contains(&format!("this node runs serial 4, and waits: {HOSTILE} is nowhere")), "{tags}");
    let verdicts = shown.text("#verdicts");
    assert!(verdicts.contains("192.168.1.6:4440 sent wrong bytes or broke the protocol"), "{verdicts}");
    assert!(verdicts.contains("prod: this node runs serial 4, and waits"), "{verdicts}");
    assert!(verdicts.contains(&format!("{HOSTILE}: an earlier version of prod")), "{verdicts}");
    let roles = "[...document.querySelectorAll('#images .role')].map(one => one.textContent).join('|')";
    assert_eq!(shown.browser.value(roles), "now: prod||before: prod");
    shown.browser.resize(TELEPHONE);
    assert!(!shown.sticks_out());
    shown.keep("page-tags-telephone");
    assert!(shown.browser.complaints.is_empty(), "{:?}", shown.browser.complaints);
}

#[test]
fn a_script_in_the_page_is_not_run_and_another_site_not_asked() {
    let Some(mut shown) = Shown::of(2, DESK, false) else { return };
    let refused = |shown: &mut Shown, what: &str| {
        shown.browser.value(&format!("(() => {{ try {{ {what}; return false; }} catch {{ return true; }} }})()"))
    };
    assert_eq!(refused(&mut shown, "document.body.innerHTML = '<b>x</b>'"), true);
    let elsewhere = "fetch('http://192.0.2.1/').then(() => 'came', () => 'refused')";
    assert_eq!(shown.browser.value(elsewhere), "refused");
    let complaints = shown.browser.complaints.join("\n");
    assert!(complaints.contains("Content Security Policy") || complaints.contains("violates"), "{complaints}");
}

#[test]
fn keys_reach_everything() {
    let Some(mut shown) = Shown::of(90, DESK, true) else { return };
    let theme = "document.documentElement.dataset.theme";
    assert_eq!(shown.browser.value(theme), "dark");
    shown.browser.press("t");
    assert_eq!(shown.browser.value(theme), "light");
    shown.browser.press("p");
    assert_eq!(shown.browser.value("document.querySelector('#pause').getAttribute('aria-pressed')"), "true");
    shown.browser.press("/");
    for letter in "rack-2".chars() {
        shown.browser.press(&letter.to_string());
    }
    // Eighty of ninety are in other racks.
    assert_eq!(shown.count("button.tile.dim"), 80);
    shown.browser.press("Enter");
    let focused = "document.activeElement.getAttribute('aria-label')";
    assert!(shown.browser.value(focused).as_str().unwrap().starts_with("192.168.1.81:4440: it answers"));
    shown.browser.press("ArrowRight");
    assert!(shown.browser.value(focused).as_str().unwrap().starts_with("192.168.1.82:4440"));
    shown.browser.press("ArrowUp");
    assert_eq!(
        shown.browser.value("document.activeElement.closest('.zone').querySelector('h3').firstChild.data"),
        "rack-1"
    );
    shown.browser.press("Home");
    shown.browser.press("Enter");
    shown.browser.until("!document.querySelector('#detail').hidden");
    assert!(shown.text("#detail").contains("this node, whose view this is"));
    shown.browser.press("Escape");
    assert_eq!(shown.browser.value("document.querySelector('#detail').hidden"), true);
    assert!(shown.browser.value("document.activeElement.className").as_str().unwrap().contains("self"));
    // Each control has a name for those who do not see it.
    let nameless = "[...document.querySelectorAll('button, input')].filter(one => !(one.getAttribute('aria-label') || one.textContent.trim())).length";
    assert_eq!(shown.browser.value(nameless), 0);
    assert!(shown.browser.complaints.is_empty(), "{:?}", shown.browser.complaints);
}

#[test]
fn a_thousand_machines_fit_a_desk_and_a_telephone() {
    let Some(mut shown) = Shown::of(1000, DESK, true) else { return };
    assert_eq!((shown.count("button.tile"), shown.count(".zone")), (1000, 25));
    assert!(shown.text("#counts").starts_with("1000 machines, "));
    shown.keep("page-thousand");
    for screen in [DESK, TELEPHONE] {
        shown.browser.resize(screen);
        assert!(!shown.sticks_out(), "{screen:?}");
    }
    shown.keep("page-thousand-telephone");
    assert!(shown.browser.complaints.is_empty(), "{:?}", shown.browser.complaints);
}

#[test]
fn a_telephone_shows_a_machine_and_says_when_its_node_is_gone() {
    let Some(mut shown) = Shown::of(10, TELEPHONE, false) else { return };
    assert!(!shown.sticks_out());
    shown.browser.value("document.querySelectorAll('button.tile')[3].click()");
    let detail = shown.text("#detail");
    assert!(detail.contains("192.168.1.4:4440") && detail.contains("stalled: it owes chunks"), "{detail}");
    assert!(detail.contains("12 answers (3 for readers), the oldest for 700 ms"), "{detail}");
    assert!(!shown.sticks_out());
    let readable = "[...document.querySelectorAll('#detail dd')].every(one => { const its = one.getBoundingClientRect(); \
                    return its.width > 150 && its.right <= innerWidth; })";
    assert_eq!(shown.browser.value(readable), true);
    shown.keep("page-telephone");
    shown.serving.abort();
    // Connections that are open are served on; without them nobody answers.
    shown.browser.call(
        "Network.emulateNetworkConditions",
        json!({"offline": true, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}),
    );
    shown.browser.until("document.querySelector('#live').className === 'off'");
    assert!(shown.text("#live").starts_with("no answer"));
}
