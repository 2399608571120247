//! Owns what is where on the screen, whatever its size: columns are left out from the least important on.

mod column;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

use super::super::TopView;
use super::super::frame::{memory, over};
use super::app::{App, Shown};
use crate::table::clean;
use crate::units;
use column::{CONTAINERS, Column, FELT, HURTS, PRESSURE, Tone, above, or_dash, part, percent};

const HELP: &str = "\
↑ ↓ PgUp PgDn Home End   mark a row
Enter   look into it: knobs, decisions, why
Esc     back; without one, no filter
/       filter by node, pod, container, class
s r     next order; reversed
1 2 3   containers, classes, pressure (Tab)
[ ]     ten seconds back and forward
{ }     a minute back and forward
l       the present again
q       end

CPU%, MEM%: use in percent of the request
THR, CPU-ST, MEM-ST, IO-ST: part of the time
  throttled, stalled for CPU, memory, I/O";

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, colour: bool) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let style = Styles { colour };
    frame.render_widget(Paragraph::new(title(app, head.width, &style)), head);
    match (&app.detail, app.view) {
        (Some(_), _) => detail(frame, app, body, &style),
        (None, TopView::Classes) => classes(frame, app, body, &style),
        (None, TopView::Containers) => rows(frame, app, body, &CONTAINERS, &style),
        (None, TopView::Pressure) => rows(frame, app, body, &PRESSURE, &style),
    }
    frame.render_widget(Paragraph::new(footer(app)), foot);
    if app.shows_help {
        let area = middle(frame.area(), HELP);
        frame.render_widget(Clear, area);
        frame.render_widget(Paragraph::new(HELP).style(style.help()), area);
    }
}

/// Colours, where they are wanted; otherwise weight alone.
struct Styles {
    colour: bool,
}

impl Styles {
    fn of(&self, tone: Tone) -> Style {
        match (tone, self.colour) {
            (Tone::Plain, _) => Style::default(),
            (Tone::Look, true) => Style::default().fg(Color::Yellow),
            (Tone::Bad, true) => Style::default().fg(Color::Red).add_modifier(Modifier::BOLD),
            (Tone::Look | Tone::Bad, false) => Style::default().add_modifier(Modifier::BOLD),
        }
    }

    fn help(&self) -> Style {
        Style::default().add_modifier(Modifier::REVERSED)
    }
}

fn title<'a>(app: &'a App, width: u16, style: &Styles) -> Vec<Line<'a>> {
    let time = app.time.as_deref().unwrap_or("waiting for the first second");
    let short = time.get(11..19).filter(|_| width < 60).unwrap_or(time);
    let cpu: u64 = app.rows.iter().filter_map(|shown| shown.row.cpu_milli).sum();
    let used: u64 = app.rows.iter().filter_map(|shown| memory(&shown.row)).sum();
    let past = if app.past_usec.is_some() { " PAST" } else { "" };
    let count = match app.rows.len() == app.all {
        true => format!("{}", app.all),
        false => format!("{}/{}", app.rows.len(), app.all),
    };
    let first = Line::from(vec![
        Span::raw(clean(short)),
        Span::styled(past, style.of(Tone::Look)),
        Span::raw(format!("  {count} containers  cpu {}  mem {}", units::cpu(cpu), units::bytes(used))),
    ]);
    let what = match app.view {
        TopView::Containers => "containers",
        TopView::Classes => "classes",
        TopView::Pressure => "pressure",
    };
    let reversed = if app.is_reversed { " reversed" } else { "" };
    let filter = match (app.filter.is_empty(), app.is_typing) {
        (_, true) => format!("  /{}_", app.filter),
        (false, false) => format!("  /{}", app.filter),
        (true, false) => String::new(),
    };
    let second = Line::from(clean(&format!("{what} by {}{reversed}{filter}", app.sort.name())));
    vec![first, second]
}

fn footer(app: &App) -> Line<'_> {
    let text = match (app.notice.is_empty(), &app.detail) {
        (false, _) => clean(&app.notice),
        (true, Some(_)) => "Esc back  ↑↓ scroll  [ ] time  ? help  q quit".to_owned(),
        (true, None) => "? help  Enter look  / filter  s sort  [ ] time  q quit".to_owned(),
    };
    Line::styled(text, Style::default().add_modifier(Modifier::DIM))
}

/// Rows of containers, the marked one in sight.
fn rows(frame: &mut Frame<'_>, app: &App, area: Rect, columns: &[Column], style: &Styles) {
    let shown: Vec<&Column> = columns.iter().filter(|column| area.width >= column.from).collect();
    let has_node = app.is_cluster && area.width >= 60;
    let mut titles = if has_node { vec!["NODE"] } else { Vec::new() };
    titles.extend(["POD", "CONTAINER"].iter().take(if area.width < 56 { 1 } else { 2 }));
    let names = titles.len();
    titles.extend(shown.iter().map(|column| column.title));
    let cells = |one: &Shown| {
        let all = [
            has_node.then(|| one.row.node.clone().unwrap_or_default()),
            Some(one.row.pod.clone()),
            (area.width >= 56).then(|| one.row.container.clone()),
        ];
        let names = all.into_iter().flatten().map(|name| Cell::from(clean(&name)));
        let values =
            shown.iter().map(|column| Cell::from((column.text)(one)).style(style.of((column.tone)(one))));
        Row::new(names.chain(values).collect::<Vec<_>>())
    };
    // Only what is in sight is made: of a cluster there are many more.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let at = app.at();
    let from = at.saturating_sub(height / 2).min(app.rows.len().saturating_sub(height));
    let visible = app.rows.iter().skip(from).take(height);
    let widths = (0..names)
        .map(|_| Constraint::Fill(1))
        .chain(shown.iter().map(|column| Constraint::Length(column.width)))
        .collect::<Vec<_>>();
    let header = Row::new(titles).style(Style::default().add_modifier(Modifier::BOLD));
    let table = Table::new(visible.map(cells), widths)
        .header(header)
        .row_highlight_style(Style::default().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default();
    if !app.rows.is_empty() {
        state.select(Some(at - from));
    }
    frame.render_stateful_widget(table, area, &mut state);
}

/// Sums by class; from the least important on, columns are left out where they do not fit.
fn classes(frame: &mut Frame<'_>, app: &App, area: Rect, style: &Styles) {
    const TITLES: [(&str, u16, u16); 9] = [
        ("CLASS", 10, 0),
        ("COUNT", 5, 0),
        ("CPU", 6, 0),
        ("REQ", 6, 60),
        ("MEM", 7, 0),
        ("REQ", 7, 60),
        ("WORST", 6, 0),
        ("OVER", 6, 66),
        ("OOM", 5, 48),
    ];
    let fits = |at: usize| TITLES.get(at).is_some_and(|(_, _, from)| area.width >= *from);
    let rows = ["Guaranteed", "Burstable", "BestEffort", "-"].into_iter().map(|class| {
        let cells = of_class(app, class, style).into_iter().enumerate();
        Row::new(cells.filter(|(at, _)| fits(*at)).map(|(_, cell)| cell).collect::<Vec<_>>())
    });
    let shown = || TITLES.iter().enumerate().filter(|(at, _)| fits(*at)).map(|(_, column)| column);
    let header = Row::new(shown().map(|(title, ..)| *title).collect::<Vec<_>>());
    let header = header.style(Style::default().add_modifier(Modifier::BOLD));
    let widths: Vec<Constraint> = shown().map(|(_, width, _)| Constraint::Length(*width)).collect();
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

/// What the containers of a class come to.
fn of_class(app: &App, class: &'static str, style: &Styles) -> [Cell<'static>; 9] {
    let of = || app.rows.iter().filter(move |shown| shown.row.qos_class.unwrap_or("-") == class);
    let sum = |value: fn(&Shown) -> Option<u64>| of().filter_map(value).sum::<u64>();
    let most = |value: fn(&Shown) -> Option<u64>| of().filter_map(value).max();
    let worst = most(|s| s.rates.worst());
    let kills = if sum(|s| s.rates.oom_kills) > 0 { Tone::Bad } else { Tone::Plain };
    [
        Cell::from(class),
        Cell::from(of().count().to_string()),
        Cell::from(units::cpu(sum(|s| s.row.cpu_milli))),
        Cell::from(units::cpu(sum(|s| s.row.cpu_request_milli))),
        Cell::from(units::bytes(sum(|s| memory(&s.row)))),
        Cell::from(units::bytes(sum(|s| s.row.memory_request_bytes))),
        Cell::from(part(worst)).style(style.of(above(worst, FELT, HURTS))),
        Cell::from(percent(most(|s| over(&s.row)))),
        Cell::from(sum(|s| s.row.oom_kills).to_string()).style(style.of(kills)),
    ]
}

/// One container: what it uses and used, its knobs and decisions.
fn detail(frame: &mut Frame<'_>, app: &App, area: Rect, style: &Styles) {
    let Some(detail) = &app.detail else { return };
    let [name, cpu, memory_area, text] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(3),
        Constraint::Length(3),
        Constraint::Min(0),
    ])
    .areas(area);
    let now = app.looked_at().map_or_else(
        || "it has ended".to_owned(),
        |row| {
            format!(
                "cpu {} of {} requested, memory {} of {}",
                or_dash(row.cpu_milli, units::cpu),
                or_dash(row.cpu_request_milli, units::cpu),
                or_dash(memory(row), units::bytes),
                or_dash(row.memory_request_bytes, units::bytes)
            )
        },
    );
    let title = Line::styled(clean(&format!("{} {}", detail.pod, detail.container)), style.of(Tone::Look));
    frame.render_widget(Paragraph::new(vec![title, Line::from(now)]), name);
    let history = app.history();
    let values = |of: fn(&(u64, u64)) -> u64| -> Vec<u64> { history.into_iter().flatten().map(of).collect() };
    for (area, title, values) in
        [(cpu, "CPU", values(|(cpu, _)| *cpu)), (memory_area, "memory", values(|(_, bytes)| *bytes))]
    {
        let [label, picture] = Layout::horizontal([Constraint::Length(9), Constraint::Min(0)]).areas(area);
        let most = values.iter().max().copied().unwrap_or(0);
        let most = if title == "CPU" { units::cpu(most) } else { units::bytes(most) };
        frame.render_widget(Paragraph::new(format!("{title}\nto {most}")), label);
        let from = values.len().saturating_sub(usize::from(picture.width));
        frame.render_widget(Sparkline::default().data(values.get(from..).unwrap_or_default()), picture);
    }
    let told = detail.text.as_deref().unwrap_or("asking the agent ...");
    let lines: Vec<Line<'_>> = told.lines().skip(detail.from).map(|line| Line::from(clean(line))).collect();
    frame.render_widget(Paragraph::new(lines), text);
}

/// The middle of an area, as large as a text needs.
fn middle(area: Rect, text: &str) -> Rect {
    let width = text.lines().map(|line| line.chars().count()).max().unwrap_or(0).min(usize::from(area.width));
    let height = text.lines().count().min(usize::from(area.height));
    let (width, height) =
        (u16::try_from(width).unwrap_or(area.width), u16::try_from(height).unwrap_or(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::super::super::Sort;
    use super::super::app::tests::frame as second;
    use super::*;

    fn screen(app: &App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app, true)).unwrap();
        terminal.backend().to_string()
    }

    fn app(view: TopView) -> App {
        let mut app = App::new(Sort::Cpu, view, "", false);
        app.second(second(100));
        app.second(second(101));
        app
    }

    /// Every width has what matters most, and no size is too small.
    #[test]
    fn what_matters_is_on_every_screen() {
        for view in [TopView::Containers, TopView::Classes, TopView::Pressure] {
            for (width, height) in [(40, 12), (80, 24), (132, 40), (200, 50)] {
                let text = screen(&app(view), width, height);
                let wanted = match view {
                    TopView::Containers => "shop/pod-a",
                    TopView::Classes => "Burstable",
                    TopView::Pressure => "MEM-ST",
                };
                assert!(text.contains(wanted) && text.contains("3 containers"), "{width}: {text}");
            }
            for (width, height) in [(1, 1), (3, 2), (20, 3), (500, 2)] {
                let _shown = screen(&app(view), width, height);
            }
        }
        let wide = screen(&app(TopView::Containers), 132, 20);
        for title in
            ["CONTAINER", "CLASS", "CPU%", "MEM%", "THR", "CPU-ST", "MEM-ST", "IO-ST", "IO/s", "OOM", "PIDS"]
        {
            assert!(wide.contains(title), "{title}: {wide}");
        }
        assert!(wide.contains("300%") && wide.contains("50%"), "{wide}");
    }

    #[test]
    fn help_and_one_container_fit_too() {
        let mut app = app(TopView::Containers);
        let press = |app: &mut App, code| app.key(KeyEvent::new(code, KeyModifiers::NONE));
        let _ = press(&mut app, KeyCode::Char('?'));
        assert!(screen(&app, 60, 24).contains("ten seconds back"), "{}", screen(&app, 60, 24));
        let _shown = screen(&app, 10, 3);
        let _ = press(&mut app, KeyCode::Char('x'));
        let _ = press(&mut app, KeyCode::Enter);
        app.described("shop/pod-c", "main", "knob\u{1b}[31m cpu.weight\nwhy".into());
        let text = screen(&app, 40, 20);
        assert!(
            text.contains("shop/pod-c main") && text.contains("cpu.weight") && !text.contains('\u{1b}'),
            "{text}"
        );
        for (width, height) in [(1, 1), (9, 5)] {
            let _shown = screen(&app, width, height);
        }
    }
}
