//! Owns what is shown and what keys do to it; pure: seconds and keys in, what is asked for out.

use std::collections::{HashMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::frame::{Frame, TopRow, memory, over};
use super::super::{Sort, TopView};
use super::rates::{Before, Rates, key};

/// Seconds of use kept of each container, for the picture of one.
const HISTORY: usize = 120;
/// Containers of which they are kept; of more only that of the row that is looked at begins when it is opened.
const FOLLOWED: usize = 5000;
/// A step back or forward, microseconds, and a large one.
const STEP: u64 = 10_000_000;
const STRIDE: u64 = 60_000_000;
/// Rows that a page key passes over.
const PAGE: usize = 10;
/// Longest filter.
const LONGEST: usize = 100;

/// What has to be asked of somebody.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AppCommand {
    Nothing,
    Quit,
    /// The second at or before a moment, microseconds since 1970.
    At(u64),
    Describe {
        pod: String,
        container: String,
    },
}

/// One row as it is shown.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) row: TopRow,
    pub(super) rates: Rates,
}

/// One container that is looked at.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) key: String,
    pub(super) pod: String,
    pub(super) container: String,
    /// Knobs and decisions; `None` until they are told.
    pub(super) text: Option<String>,
    /// First line of the text that is shown.
    pub(super) from: usize,
}

/// Thousandths of a core and bytes, second by second.
pub(super) type History = VecDeque<(u64, u64)>;

/// Everything on the screen.
#[derive(Debug)]
pub(super) struct App {
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) view: TopView,
    pub(super) filter: String,
    /// The filter is being typed.
    pub(super) is_typing: bool,
    pub(super) is_cluster: bool,
    pub(super) shows_help: bool,
    pub(super) detail: Option<Detail>,
    /// What went wrong with the last key.
    pub(super) notice: String,
    /// Time of the second that is shown, where it is one of the past.
    pub(super) past_usec: Option<u64>,
    pub(super) time: Option<String>,
    /// Rows in their order.
    pub(super) rows: Vec<Shown>,
    /// Containers before the filter.
    pub(super) all: usize,
    /// Who is marked.
    marked: Option<String>,
    /// Rows of the second that is shown, as they came.
    frame: Option<Frame>,
    rates: Vec<Rates>,
    before: Before,
    history: HashMap<String, History>,
    now_usec: u64,
}

impl App {
    pub(super) fn new(sort: Sort, view: TopView, filter: &str, is_cluster: bool) -> Self {
        Self {
            sort,
            is_reversed: false,
            view,
            filter: filter.to_owned(),
            is_typing: false,
            is_cluster,
            shows_help: false,
            detail: None,
            notice: String::new(),
            past_usec: None,
            time: None,
            rows: Vec::new(),
            all: 0,
            marked: None,
            frame: None,
            rates: Vec::new(),
            before: Before::default(),
            history: HashMap::new(),
            now_usec: 0,
        }
    }

    /// A second came.
    pub(super) fn second(&mut self, frame: Frame) {
        self.now_usec = self.now_usec.max(frame.time_usec);
        self.remember(&frame);
        let before = std::mem::replace(&mut self.before, Before::of(&frame));
        if self.past_usec.is_none() {
            self.show(&before, frame);
        }
    }

    /// A second of the past was told, with the one before it.
    pub(super) fn past(&mut self, before: Option<Frame>, frame: Frame) {
        self.notice.clear();
        self.past_usec = Some(frame.time_usec);
        let before = before.map(|before| Before::of(&before)).unwrap_or_default();
        self.show(&before, frame);
    }

    pub(super) fn notice(&mut self, text: &str) {
        text.clone_into(&mut self.notice);
    }

    /// Knobs and decisions of a container were told.
    pub(super) fn described(&mut self, pod: &str, container: &str, text: String) {
        if let Some(detail) = self.detail.as_mut().filter(|d| d.pod == pod && d.container == container) {
            detail.text = Some(text);
        }
    }

    /// Use of the container that is looked at.
    pub(super) fn history(&self) -> Option<&History> {
        self.history.get(&self.detail.as_ref()?.key)
    }

    /// The row that is looked at, where it is there still.
    pub(super) fn looked_at(&self) -> Option<&TopRow> {
        let wanted = &self.detail.as_ref()?.key;
        self.frame.as_ref()?.containers.iter().find(|row| key(row) == *wanted)
    }

    /// Place of the marked row.
    pub(super) fn at(&self) -> usize {
        let at = self
            .marked
            .as_ref()
            .and_then(|marked| self.rows.iter().position(|shown| key(&shown.row) == *marked));
        at.unwrap_or(0)
    }

    fn remember(&mut self, frame: &Frame) {
        let looked_at = self.detail.as_ref().map(|detail| detail.key.clone());
        let is_small = frame.containers.len() <= FOLLOWED;
        let mut kept = HashMap::new();
        for row in &frame.containers {
            let key = key(row);
            if !is_small && looked_at.as_ref() != Some(&key) {
                continue;
            }
            let mut history = self.history.remove(&key).unwrap_or_default();
            if history.len() >= HISTORY {
                history.pop_front();
            }
            history.push_back((row.cpu_milli.unwrap_or(0), memory(row).unwrap_or(0)));
            kept.insert(key, history);
        }
        self.history = kept;
    }

    fn show(&mut self, before: &Before, frame: Frame) {
        self.time.clone_from(&frame.time);
        self.rates = frame.containers.iter().map(|row| before.rates(row, frame.time_usec)).collect();
        self.frame = Some(frame);
        self.arrange();
    }

    /// Filters and sorts what is there.
    fn arrange(&mut self) {
        let Some(frame) = &self.frame else { return };
        self.all = frame.containers.len();
        let pairs = frame.containers.iter().zip(&self.rates);
        let mut rows: Vec<Shown> = pairs
            .filter(|(row, _)| self.filter.is_empty() || row.has(&self.filter))
            .map(|(row, rates)| Shown { row: row.clone(), rates: *rates })
            .collect();
        let most_first =
            |value: fn(&Shown) -> Option<u64>| move |shown: &Shown| std::cmp::Reverse(value(shown));
        // The sort is stable, so that equal rows keep the order of their names.
        match self.sort {
            Sort::Name => {}
            Sort::Cpu => rows.sort_by_key(most_first(|s| s.row.cpu_milli)),
            Sort::Memory => rows.sort_by_key(most_first(|s| memory(&s.row))),
            Sort::Over => rows.sort_by_key(most_first(|s| over(&s.row))),
            Sort::Throttling => rows.sort_by_key(most_first(|s| s.rates.throttled)),
            Sort::Stall => rows.sort_by_key(most_first(|s| s.rates.worst())),
            Sort::Io => rows.sort_by_key(most_first(|s| s.row.traffic.as_ref().map(|t| t.io()))),
            Sort::Oom => rows.sort_by_key(most_first(|s| s.row.oom_kills)),
        }
        if self.is_reversed {
            rows.reverse();
        }
        self.rows = rows;
    }

    /// A key was pressed.
    pub(super) fn key(&mut self, pressed: KeyEvent) -> AppCommand {
        self.notice.clear();
        let is_ctrl = pressed.modifiers.contains(KeyModifiers::CONTROL);
        if is_ctrl && matches!(pressed.code, KeyCode::Char('c' | 'd')) {
            return AppCommand::Quit;
        }
        if self.is_typing {
            self.typed(pressed.code);
            return AppCommand::Nothing;
        }
        if self.shows_help {
            self.shows_help = false;
            return AppCommand::Nothing;
        }
        match pressed.code {
            KeyCode::Char('q' | 'Q') => return AppCommand::Quit,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('[') => return self.back(STEP),
            KeyCode::Char('{') => return self.back(STRIDE),
            KeyCode::Char(']') => return self.forward(STEP),
            KeyCode::Char('}') => return self.forward(STRIDE),
            KeyCode::Char('l') => self.now(),
            code if self.detail.is_some() => self.in_detail(code),
            code => return self.in_list(code),
        }
        AppCommand::Nothing
    }

    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if self.filter.len() < LONGEST && !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.arrange();
    }

    fn in_detail(&mut self, code: KeyCode) {
        let Some(detail) = &mut self.detail else { return };
        let lines = detail.text.as_ref().map_or(0, |text| text.lines().count());
        match code {
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.detail = None,
            KeyCode::Down | KeyCode::Char('j') => {
                detail.from = (detail.from + 1).min(lines.saturating_sub(1));
            }
            KeyCode::PageDown => detail.from = (detail.from + PAGE).min(lines.saturating_sub(1)),
            KeyCode::Up | KeyCode::Char('k') => detail.from = detail.from.saturating_sub(1),
            KeyCode::PageUp => detail.from = detail.from.saturating_sub(PAGE),
            KeyCode::Home => detail.from = 0,
            _ => {}
        }
    }

    fn in_list(&mut self, code: KeyCode) -> AppCommand {
        let last = self.rows.len().saturating_sub(1);
        let at = self.at();
        match code {
            KeyCode::Down | KeyCode::Char('j') => self.mark(at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.mark(at.saturating_sub(1)),
            KeyCode::PageDown => self.mark((at + PAGE).min(last)),
            KeyCode::PageUp => self.mark(at.saturating_sub(PAGE)),
            KeyCode::Home => self.mark(0),
            KeyCode::End => self.mark(last),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
            }
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            KeyCode::Char('1') => self.view = TopView::Containers,
            KeyCode::Char('2') => self.view = TopView::Classes,
            KeyCode::Char('3') => self.view = TopView::Pressure,
            KeyCode::Tab | KeyCode::Char('v') => {
                self.view = match self.view {
                    TopView::Containers => TopView::Classes,
                    TopView::Classes => TopView::Pressure,
                    TopView::Pressure => TopView::Containers,
                };
            }
            KeyCode::Enter | KeyCode::Right if self.view != TopView::Classes => return self.open(at),
            _ => {}
        }
        AppCommand::Nothing
    }

    fn mark(&mut self, at: usize) {
        if let Some(shown) = self.rows.get(at) {
            self.marked = Some(key(&shown.row));
        }
    }

    fn open(&mut self, at: usize) -> AppCommand {
        let Some(Shown { row, .. }) = self.rows.get(at) else { return AppCommand::Nothing };
        let (pod, container) = (row.pod.clone(), row.container.clone());
        let key = key(row);
        self.marked = Some(key.clone());
        self.detail =
            Some(Detail { key, pod: pod.clone(), container: container.clone(), text: None, from: 0 });
        AppCommand::Describe { pod, container }
    }

    fn back(&self, by: u64) -> AppCommand {
        let from = self.past_usec.unwrap_or(self.now_usec);
        AppCommand::At(from.saturating_sub(by))
    }

    fn forward(&mut self, by: u64) -> AppCommand {
        match self.past_usec {
            None => AppCommand::Nothing,
            Some(past) if past.saturating_add(by) >= self.now_usec => {
                self.now();
                AppCommand::Nothing
            }
            Some(past) => AppCommand::At(past.saturating_add(by)),
        }
    }

    /// The next second that comes is shown.
    fn now(&mut self) {
        self.past_usec = None;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use evenkeel_proto::v1::{ContainerIdentity, ContainerUsage, ResourceValues, Sample};

    use super::*;

    /// Three containers in one second: `a` throttled and stalled, `b` large, `c` over its request.
    pub(in super::super) fn frame(second: u64) -> Frame {
        let usage = |name: &str, cpu: u64, bytes: u64, throttled: u64| ContainerUsage {
            identity: Some(ContainerIdentity {
                id: format!("id-{name}"),
                namespace: "shop".into(),
                pod: format!("pod-{name}"),
                container: "main".into(),
                requested: Some(ResourceValues {
                    cpu_request_milli: Some(100),
                    memory_request_bytes: Some(100 << 20),
                    ..Default::default()
                }),
                memory_class: if name == "b" { 1 } else { 2 },
                ..Default::default()
            }),
            sample: Some(Sample {
                interval_usec: 1_000_000,
                cpu_throttled_usec: Some(throttled * second),
                memory_pressure_usec: Some(throttled * second / 2),
                memory_working_set_bytes: Some(bytes),
                oom_kills: Some(0),
                pids: Some(3),
                ..Default::default()
            }),
            cpu_milli: Some(cpu),
            time_usec: second * 1_000_000,
            ..Default::default()
        };
        let all =
            vec![usage("a", 10, 1 << 20, 500_000), usage("b", 20, 90 << 20, 0), usage("c", 300, 2 << 20, 0)];
        Frame::new(all, false)
    }

    fn press(app: &mut App, code: KeyCode) -> AppCommand {
        app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn names(app: &App) -> Vec<&str> {
        app.rows.iter().map(|shown| shown.row.pod.trim_start_matches("shop/pod-")).collect()
    }

    #[test]
    fn keys_sort_filter_and_mark() {
        let mut app = App::new(Sort::Cpu, TopView::Containers, "", false);
        app.second(frame(100));
        app.second(frame(101));
        assert_eq!(names(&app), ["c", "b", "a"]);
        let _ = press(&mut app, KeyCode::Char('r'));
        assert_eq!(names(&app), ["a", "b", "c"]);
        let _ = press(&mut app, KeyCode::Char('r'));
        for (sort, order) in [
            (Sort::Memory, ["b", "c", "a"]),
            (Sort::Over, ["c", "b", "a"]),
            (Sort::Throttling, ["a", "b", "c"]),
            (Sort::Stall, ["a", "b", "c"]),
        ] {
            let _ = press(&mut app, KeyCode::Char('s'));
            assert_eq!((app.sort, names(&app)), (sort, order.to_vec()));
        }
        assert_eq!(app.rows[0].rates.throttled, Some(500));
        for key in "/pod-b".chars() {
            let _ = press(&mut app, KeyCode::Char(key));
        }
        assert_eq!((names(&app), app.all, app.is_typing), (vec!["b"], 3, true));
        // While it is typed, q is a letter.
        let _ = press(&mut app, KeyCode::Char('q'));
        assert_eq!(names(&app), Vec::<&str>::new());
        let _ = press(&mut app, KeyCode::Esc);
        assert_eq!((names(&app).len(), app.filter.as_str()), (3, ""));
        let _ = press(&mut app, KeyCode::End);
        assert_eq!(app.at(), 2);
        // A mark stays with its container.
        let _ = press(&mut app, KeyCode::Char('r'));
        assert_eq!(app.at(), 0);
        assert_eq!(press(&mut app, KeyCode::Char('q')), AppCommand::Quit);
        assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), AppCommand::Quit);
    }

    #[test]
    fn time_goes_back_and_forward_and_the_present_comes_again() {
        let mut app = App::new(Sort::Name, TopView::Containers, "", false);
        app.second(frame(100));
        assert_eq!(press(&mut app, KeyCode::Char(']')), AppCommand::Nothing);
        assert_eq!(press(&mut app, KeyCode::Char('[')), AppCommand::At(90_000_000));
        app.past(Some(frame(89)), frame(90));
        app.second(frame(101));
        assert_eq!(app.past_usec, Some(90_000_000), "the past stays on the screen");
        assert_eq!(app.rows[0].rates.throttled, Some(500));
        assert_eq!(press(&mut app, KeyCode::Char('{')), AppCommand::At(30_000_000));
        assert_eq!(press(&mut app, KeyCode::Char(']')), AppCommand::At(100_000_000));
        app.past(None, frame(100));
        assert_eq!(app.rows[0].rates, Rates::default(), "without a second before it");
        assert_eq!(press(&mut app, KeyCode::Char(']')), AppCommand::Nothing);
        assert_eq!(app.past_usec, None);
    }

    #[test]
    fn a_container_is_looked_into_and_left() {
        let mut app = App::new(Sort::Name, TopView::Pressure, "", false);
        app.second(frame(100));
        app.second(frame(101));
        let _ = press(&mut app, KeyCode::Down);
        let asked = press(&mut app, KeyCode::Enter);
        assert_eq!(asked, AppCommand::Describe { pod: "shop/pod-b".into(), container: "main".into() });
        app.described("shop/other", "main", "not this".into());
        assert!(app.detail.as_ref().unwrap().text.is_none());
        app.described("shop/pod-b", "main", "one\ntwo".into());
        let _ = press(&mut app, KeyCode::PageDown);
        assert_eq!(app.detail.as_ref().unwrap().from, 1);
        assert_eq!(app.history().unwrap().len(), 2);
        assert_eq!(app.looked_at().unwrap().pod, "shop/pod-b");
        for _ in 0..300 {
            app.second(frame(102));
        }
        assert_eq!(app.history().unwrap().len(), HISTORY);
        let _ = press(&mut app, KeyCode::Esc);
        assert!(app.detail.is_none());
        let _ = press(&mut app, KeyCode::Char('2'));
        assert_eq!(press(&mut app, KeyCode::Enter), AppCommand::Nothing, "a class is no container");
    }
}
