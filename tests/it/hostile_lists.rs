//! Lists that lose, repeat, reorder, shrink, break off and never end: each item is stored exactly once.

use crate::rig::prelude::*;

/// Items of each list.
const ITEMS: i64 = 200;
/// Seconds between two items.
const EVERY: i64 = 10;
/// Items of a page.
const PAGE: usize = 10;
/// Lists that a box reads beside each other; a tenant may have 50 sources.
const LISTS: usize = 10;
/// The span in which a list may lie about an item: half of the overlap.
const YOUNG: i64 = 300;

/// Numbers that follow from a seed.
pub(super) struct Seeded(pub(super) u64);

impl Seeded {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // Source: Knuth's MMIX, of which the upper bits are good.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub(super) fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How a list says which page comes next.
#[derive(Clone, Copy)]
enum Paging {
    LastItem,
    Page,
    Offset,
    Link,
}

impl Paging {
    const ALL: [Self; 4] = [Self::LastItem, Self::Page, Self::Offset, Self::Link];

    fn terms(self) -> Value {
        match self {
            Self::LastItem => {
                json!({ "by": "last_item", "path": "/id", "parameter": "after", "more": "/more" })
            }
            Self::Page => json!({ "by": "page", "parameter": "page" }),
            Self::Offset => json!({ "by": "offset", "parameter": "offset" }),
            Self::Link => json!({ "by": "link" }),
        }
    }
}

struct HostileList {
    paging: Paging,
    seed: u64,
    seeded: Seeded,
    clock: Clock,
    /// Whether it still lies.
    lies: Arc<AtomicBool>,
    address: SocketAddr,
}

fn number(target: &str, name: &str) -> Option<i64> {
    let (_, query) = target.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value?.parse().ok()
}

impl HostileList {
    fn answer(&mut self, request: &Message) -> Reply {
        let target = request.first_line.split(' ').nth(1).unwrap().to_owned();
        let lies = self.lies.load(Ordering::SeqCst);
        if lies {
            match self.seeded.below(60) {
                0..=3 => return Reply::status(500),
                4 => return Reply::CutRead,
                5 => return Reply::with(429, "retry-after", "1"),
                6 => return Reply::Answer(200, Vec::new(), b"<html>busy</html>".to_vec()),
                7 => return Reply::Answer(200, Vec::new(), br#"{"data":[{"id":"#.to_vec()),
                _ => {}
            }
        }
        let items = self.shown(&target, lies);
        self.page(&target, &items, lies)
    }

    /// The times of the items that the list shows now, in its order.
    fn shown(&mut self, target: &str, lies: bool) -> Vec<i64> {
        let now = self.clock.wall().secs() - START.secs();
        let since = number(target, "since").map_or(0, |since| since - START.secs());
        let newest = now.min((ITEMS - 1) * EVERY);
        let all = (0..ITEMS).map(|n| n * EVERY).filter(|at| *at <= newest && *at >= since);
        let mut shown: Vec<i64> = all.collect();
        shown.reverse();
        if !lies {
            return shown;
        }
        // It loses some of the young ones for a while, so that all others are on other pages than before.
        let hides = |at: i64| self.hides(at, now);
        shown.retain(|at| *at <= now - YOUNG || !hides(*at));
        if self.seeded.is(15) {
            for n in (1..shown.len()).rev() {
                let other = self.seeded.below(u64::try_from(n).unwrap() + 1);
                shown.swap(n, usize::try_from(other).unwrap());
            }
        }
        if self.seeded.is(15) && !shown.is_empty() {
            shown.insert(0, shown[shown.len() / 2]);
        }
        shown
    }

    /// Whether it hides a young item now.
    fn hides(&self, at: i64, now: i64) -> bool {
        let place = at * 1_000 + now / 90;
        Seeded(self.seed.wrapping_add(u64::try_from(place).unwrap())).is(20)
    }

    fn page(&mut self, target: &str, items: &[i64], lies: bool) -> Reply {
        let place = |name| usize::try_from(number(target, name).unwrap_or(0)).unwrap();
        let begin = match self.paging {
            Paging::Offset => place("offset"),
            Paging::Page | Paging::Link => place("page").saturating_sub(1) * PAGE,
            Paging::LastItem => match number(target, "after") {
                None => 0,
                Some(after) => match items.iter().position(|at| *at == after) {
                    Some(at) => at + 1,
                    None => return Reply::status(400),
                },
            },
        };
        let page: Vec<i64> = items.iter().skip(begin).take(PAGE).copied().collect();
        let mut more = items.len() > begin + PAGE;
        // Sometimes it never ends.
        more |= lies && self.seeded.is(5) && !page.is_empty();
        // Large enough to need the larger share of memory.
        let note = if lies && self.seeded.is(1) { "x".repeat(200 << 10) } else { String::new() };
        let data: Vec<Value> = page
            .iter()
            .map(|at| json!({ "id": at.to_string(), "at": START.secs() + at, "note": note }))
            .collect();
        let mut fields = Vec::new();
        if matches!(self.paging, Paging::Link) && more {
            let since =
                number(target, "since").map_or_else(String::new, |at| format!("&since={at}"));
            let page = place("page").max(1) + 1;
            let link = format!("<http://{}/list?page={page}{since}>; rel=\"next\"", self.address);
            fields.push(("link", link));
        }
        Reply::Answer(200, fields, json!({ "data": data, "more": more }).to_string().into_bytes())
    }
}

/// The list of a seed, and its source.
fn begin(rig: &Rig, seed: u64, lies: &Arc<AtomicBool>) -> Receiver {
    let server = Receiver::new();
    let paging = Paging::ALL[usize::try_from(seed % 4).unwrap()];
    let mut list = HostileList {
        paging,
        seed,
        seeded: Seeded(seed),
        clock: Clock::from_source(rig.time.clone()),
        lies: Arc::clone(lies),
        address: server.address,
    };
    server.decide(move |request| list.answer(request));
    let settings = json!({
        "url": format!("http://{}/list", server.address),
        "items": "/data", "item_id": ["/id"], "time": "/at", "next": paging.terms(),
        "newer_than": { "parameter": "since", "form": "unix_seconds" },
        "interval_ms": 10_000, "overlap_ms": 2 * YOUNG * 1_000, "defaults": { "event_type": "item" },
    });
    rig.source(&format!("list-{seed}"), "http", &settings);
    server
}

#[test]
fn a_list_that_lies_loses_no_item_and_doubles_none() {
    let count = std::env::var("ONCEBOX_LIST_SEEDS").map_or(8, |text| text.parse().unwrap());
    let first = std::env::var("ONCEBOX_LIST_SEED").map_or(1, |text| text.parse().unwrap());
    let all: Vec<u64> = (first..first + count).collect();
    for seeds in all.chunks(LISTS) {
        lists_that_lie(seeds);
    }
}

/// A box that reads the lists of these seeds.
fn lists_that_lie(seeds: &[u64]) {
    let rig = Rig::new();
    let lies = Arc::new(AtomicBool::new(true));
    let servers: Vec<Receiver> = seeds.iter().map(|seed| begin(&rig, *seed, &lies)).collect();
    let counts = || servers.iter().map(Receiver::count).collect::<Vec<_>>();
    // A minute is the longest pause of a source, so each of them reads in each step.
    for _ in 0..=ITEMS * EVERY / 60 {
        let before = counts();
        rig.advance(secs(61));
        let mut looks = 0;
        until("each list is read", || {
            // One that was read while time passed rests until more of it has passed.
            looks += 1;
            if looks % 40 == 0 {
                rig.advance(secs(61));
            }
            counts().iter().zip(&before).all(|(now, then)| now > then)
        });
    }
    lies.store(false, Ordering::SeqCst);
    let of = |seed: u64| {
        let sql = format!(
            "SELECT count(*), count(DISTINCT idempotency_key) FROM outbox WHERE source_system = 'list-{seed}'"
        );
        rig.one(&sql)
    };
    let wanted = format!("{ITEMS} {ITEMS}");
    let lacks = || seeds.iter().filter(|seed| of(**seed) != wanted).collect::<Vec<_>>();
    // A round has several pages, and a busy machine reads few of them in a step.
    rig.passing("no list lacks an item", secs(20), || {
        thread::sleep(Duration::from_millis(20));
        lacks().is_empty()
    });
    assert_eq!(lacks(), Vec::<&u64>::new(), "seeds that lack items");
    for seed in seeds.iter().copied() {
        assert_eq!(of(seed), wanted, "seed {seed}");
        rig.passing("its error is gone", secs(61), || {
            rig.get(&format!("/v1/sources/list-{seed}"))["last_error"].is_null()
        });
        has(&rig.get(&format!("/v1/sources/list-{seed}")), &json!({ "event_count": ITEMS }));
    }
    rig.says("SELECT count(*) FROM outbox WHERE status = 'quarantined'", "0");
    rig.says("SELECT sum(duplicate_count) + sum(differing_count) FROM outbox", "0");
}
