//! Each kind of page in a real browser: at a phone's and a desktop's width, light and dark.
//!
//! # Guarantee
//! No page complains or loads anything, nothing leaves the window or its plot, no column lies beyond a table's edge and
//! no label is cut off, every plot has two axes with units and ticks, data, a text and where it comes from, text and
//! marks have contrast, and tables sort by keyboard alone. What is folded is held to the same.
//! Without a browser on the machine the tests say so and pass.

mod chrome;
mod sets;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrome::Chrome;

const CHECKS: &str = include_str!("checks.js");

const WINDOWS: [(u32, u32); 2] = [(390, 844), (1280, 800)];

/// Returns a browser, or says why there is none.
fn browser(name: &str) -> Option<Chrome> {
    let Some(program) = chrome::program() else {
        eprintln!("skipped: no chromium on this machine");
        return None;
    };
    Some(Chrome::start(&program, name))
}

/// Writes a page, for as long as the value lives.
struct Page(PathBuf);

impl Page {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("faultless-page-{}-{name}.html", std::process::id()));
        std::fs::write(&path, text).expect("written");
        Self(path)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn check(chrome: &mut Chrome, name: &str, file: &Path) {
    for window in WINDOWS {
        for scheme in ["light", "dark"] {
            let complaints = chrome.open(file, window, scheme);
            assert!(complaints.is_empty(), "{name} {window:?} {scheme}: {complaints:#?}");
            let wrong = chrome.value(CHECKS);
            assert_eq!(wrong.as_array().map(Vec::len), Some(0), "{name} {window:?} {scheme}: {wrong:#}");
            chrome.value("document.querySelectorAll('details').forEach((part) => { part.open = true; })");
            let wrong = chrome.value(CHECKS);
            assert_eq!(wrong.as_array().map(Vec::len), Some(0), "{name} {window:?} {scheme}, unfolded: {wrong:#}");
            if let Some(folder) = std::env::var_os("FAULTLESS_PICTURES") {
                let picture = chrome.picture();
                let path = Path::new(&folder).join(format!("{name}-{}-{scheme}.b64", window.0));
                std::fs::write(path, picture).expect("written");
            }
        }
    }
}

#[test]
fn every_kind_of_page_is_whole_on_a_phone_and_a_desktop_light_and_dark() {
    let Some(mut chrome) = browser("kinds") else { return };
    for (name, text) in sets::pages().into_iter().chain([("largest", sets::largest())]) {
        let page = Page::new(name, &text);
        check(&mut chrome, name, &page.0);
    }
    for file in own_pages() {
        check(&mut chrome, &file.display().to_string(), &file);
    }
}

/// Returns the pages of one's own that are to be looked at, too: `FAULTLESS_PAGES=FILE:FILE`.
fn own_pages() -> Vec<PathBuf> {
    std::env::var_os("FAULTLESS_PAGES").iter().flat_map(std::env::split_paths).collect()
}

/// How often a page is opened until its first picture is there in time: on a machine that does something else
/// meanwhile, the first look may be late through no fault of the page.
const LOOKS: usize = 10;

/// `--nocapture` shows the times.
#[test]
fn the_first_picture_is_there_within_a_second() {
    let Some(mut chrome) = browser("paint") else { return };
    let pages = sets::pages().into_iter().chain([("largest", sets::largest())]);
    let kept: Vec<Page> = pages.map(|(name, text)| Page::new(&format!("paint-{name}"), &text)).collect();
    for file in kept.iter().map(|page| page.0.clone()).chain(own_pages()) {
        let mut looks = (0..LOOKS).map(|_| first_picture_ms(&mut chrome, &file));
        let ms = looks.by_ref().find(|ms| *ms < 1000.0);
        println!("{}: {ms:?} ms, after {} looks", file.display(), LOOKS - looks.len());
        assert!(ms.is_some(), "{}: never within a second", file.display());
    }
}

fn first_picture_ms(chrome: &mut Chrome, file: &Path) -> f64 {
    chrome.open(file, WINDOWS[1], "light");
    let painted = "performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)[0]";
    let began = Instant::now();
    loop {
        if let Some(ms) = chrome.value(painted).as_f64() {
            return ms;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}: nothing is painted", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn tables_sort_by_keyboard_alone() {
    let Some(mut chrome) = browser("keys") else { return };
    let page = Page::new("keys", &sets::page("bench"));
    chrome.open(&page.0, WINDOWS[1], "light");
    let column = "[...document.activeElement.closest('table').tBodies[0].rows].map((row) => Number(row.cells[1].dataset.figure))";
    let at = "document.activeElement.textContent.trim() === 'CPUs' && document.activeElement.tagName === 'BUTTON'";
    let mut presses = 0;
    while chrome.value(at) != true {
        chrome.press("Tab");
        presses += 1;
        assert!(presses < 50, "Tab never reaches the heading");
    }
    let outline = chrome.value("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, "solid", "who has no mouse sees where they are");
    for is_falling in [false, true] {
        chrome.press("Enter");
        let figures: Vec<f64> = serde_json::from_value(chrome.value(column)).expect("figures");
        let is_sorted = if is_falling { figures.is_sorted_by(|a, b| a >= b) } else { figures.is_sorted() };
        assert!(is_sorted && figures.len() > 1, "{figures:?}");
        let told = chrome.value("document.activeElement.closest('th').getAttribute('aria-sort')");
        assert_eq!(told, if is_falling { "descending" } else { "ascending" });
    }
}

#[test]
fn a_part_of_the_time_is_looked_at_closely_by_keyboard_alone() {
    let Some(mut chrome) = browser("zoom") else { return };
    let page = Page::new("zoom", &sets::page("replay"));
    for window in WINDOWS {
        chrome.open(&page.0, window, "dark");
        let mut presses = 0;
        while chrome.value("document.activeElement.dataset.zoom") != "in" {
            chrome.press("Tab");
            presses += 1;
            assert!(presses < 80, "Tab never reaches the buttons");
        }
        chrome.press("Enter");
        chrome.press("Enter");
        let told = chrome.value("document.activeElement.parentElement.querySelector('.range').textContent");
        assert_eq!(told, "375 ms to 625 ms");
        let shown = "(() => { const plot = [...document.activeElement.closest('figure').querySelectorAll('svg.plot')].find((plot) => \
                     plot.getClientRects().length); return [plot.querySelector('.inner').getAttribute('viewBox').split(' ')[0], \
                     [...plot.querySelectorAll('[data-axis=x] .tick')].map((tick) => tick.textContent).sort().join()] })()";
        let ticks = if window.0 < 700 { "375 ms,500 ms,625 ms" } else { "375 ms,437.5 ms,500 ms,562.5 ms,625 ms" };
        assert_eq!(chrome.value(shown), serde_json::json!(["375", ticks]));
        assert_eq!(chrome.value(CHECKS), serde_json::json!([]), "a closer look is as whole");
        (0..4).for_each(|_| chrome.press("Tab"));
        chrome.press("Enter");
        assert_eq!(chrome.value(shown)[0], "0");
    }
}

/// The checks themselves notice what they are there for.
#[test]
fn a_page_that_is_broken_is_noticed() {
    let Some(mut chrome) = browser("broken") else { return };
    let good = sets::page("bench");
    let breaks: [(&str, &str, &str, &str); 9] = [
        ("wide", "<h1>", "<h1 style=\"width:2000px\">", "px wide in a window"),
        ("axis", "data-axis=\"y\"", "data-other=\"y\"", "no axis y"),
        ("ticks", "class=\"tick\"", "class=\"tock\"", "fewer than two ticks"),
        ("text", "aria-label=", "data-label=", "no text for who"),
        ("grey", "--dim: #545a64", "--dim: #b5b5b5", "contrast"),
        ("out", "class=\"name\" x=\"", "class=\"name\" x=\"9", "leaves the plot"),
        ("table", "max-width: 22rem", "min-width: 22rem", "px wide in"),
        ("cut", ">faultless</td>", ">faultle…</td>", "is cut off"),
        ("touch", "height: auto; font-size: 12px", "height: auto; font-size: 24px", "touches"),
    ];
    for (name, from, to, noticed) in breaks {
        let broken = good.replace(from, to);
        assert_ne!(broken, good, "{name}");
        let page = Page::new(name, &broken);
        chrome.open(&page.0, WINDOWS[1], "light");
        let wrong = chrome.value(CHECKS).to_string();
        assert!(wrong.contains(noticed), "{name}: {wrong}");
    }
    let loads = good.replace("<main>", "<main><img src=\"http://127.0.0.1:9/x.png\" alt=\"\">");
    let page = Page::new("loads", &loads);
    let complaints = chrome.open(&page.0, WINDOWS[1], "light");
    assert!(!complaints.is_empty(), "what the policy forbids is told");
}
