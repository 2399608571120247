//! Owns the screen of `top`: seconds and keys in, text on the terminal out. What a key does is in `app`, what is shown where in `draw`.

mod app;
mod draw;
mod rates;

use std::io::{self, Stdout, stdout};
use std::thread;

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};
use ratatui::crossterm::{cursor, execute, terminal};
use tokio::sync::mpsc;

use super::ticks::{TickSource, Ticks, past};
use super::{TopArgs, frame::Frame};
use crate::client::Address;
use crate::commands::describe;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use app::{App, AppCommand};

/// Keys that wait to be looked at.
const KEYS: usize = 64;
/// A second, in microseconds.
const SECOND: u64 = 1_000_000;

/// What the terminal says.
enum Input {
    Key(KeyEvent),
    Resized,
}

/// Shows seconds until a key ends it.
///
/// # Errors
/// When nobody answers any more, or the terminal cannot be written.
pub(super) async fn run(args: &TopArgs, source: TickSource<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    let mut ticks = Ticks::open(source).await?;
    let mut app = App::new(args.sort, args.view, &args.filter, matches!(source, TickSource::Cluster(_)));
    if let (Some(moment), TickSource::Node(address)) = (args.at, source) {
        look_back(&mut app, address, moment.usec(Timestamp::now())).await;
    }
    let mut screen = Screen::enter()?;
    let mut inputs = inputs();
    loop {
        screen.draw(&app, output.has_colour())?;
        let asked = tokio::select! {
            frame = ticks.next() => match frame? {
                Some(frame) => {
                    app.second(frame);
                    AppCommand::Nothing
                }
                None => return Err(ticks.ended()),
            },
            input = inputs.recv() => match input {
                Some(Input::Key(key)) => app.key(key),
                Some(Input::Resized) => AppCommand::Nothing,
                // The terminal is gone.
                None => AppCommand::Quit,
            },
        };
        match (asked, source) {
            (AppCommand::Quit, _) => return Ok(YesOrNo::Yes),
            (AppCommand::Nothing, _) => {}
            (AppCommand::At(usec), TickSource::Node(address)) => look_back(&mut app, address, usec).await,
            (AppCommand::Describe { pod, container }, TickSource::Node(address)) => {
                let told = describe::told(&pod, &container, address).await;
                app.described(&pod, &container, told.unwrap_or_else(|failure| failure.summary()));
            }
            (AppCommand::At(_), TickSource::Cluster(_)) => {
                app.notice("what is past is kept by each node's agent: evenkeel top --at there");
            }
            (AppCommand::Describe { pod, container }, TickSource::Cluster(_)) => {
                app.described(
                    &pod,
                    &container,
                    "knobs and decisions: ask the agent of its node, or evenkeel events --all-nodes"
                        .to_owned(),
                );
            }
        }
    }
}

/// Shows a second of the past, with the one before for what is told by second.
async fn look_back(app: &mut App, address: &Address, usec: u64) {
    let told: Result<(Option<Frame>, Frame), Failure> = async {
        let frame = past(address, usec).await?;
        let before = past(address, frame.time_usec.saturating_sub(SECOND)).await.ok();
        Ok((before, frame))
    }
    .await;
    match told {
        Ok((before, frame)) => app.past(before, frame),
        Err(failure) => app.notice(&failure.cause()),
    }
}

/// Keys and changes of the terminal's size, from a thread that ends with the program: a read of a terminal cannot be cut short.
fn inputs() -> mpsc::Receiver<Input> {
    let (tell, inputs) = mpsc::channel(KEYS);
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let input = match event {
                event::Event::Key(key) if key.kind == KeyEventKind::Press => Input::Key(key),
                event::Event::Resize(..) => Input::Resized,
                _ => continue,
            };
            if tell.blocking_send(input).is_err() {
                return;
            }
        }
    });
    inputs
}

/// The terminal while `top` is on it; put back when dropped.
struct Screen(Terminal<CrosstermBackend<Stdout>>);

fn failed(why: &io::Error) -> Failure {
    Failure::new(
        "cannot use the terminal",
        "standard output",
        why.to_string(),
        "use --once, or another terminal",
    )
}

impl Screen {
    fn enter() -> Result<Self, Failure> {
        terminal::enable_raw_mode().map_err(|why| failed(&why))?;
        let entered = execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide);
        let made = entered.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        made.map(Self).map_err(|why| {
            leave();
            failed(&why)
        })
    }

    fn draw(&mut self, app: &App, colour: bool) -> Result<(), Failure> {
        self.0.draw(|frame| draw::draw(frame, app, colour)).map(|_| ()).map_err(|why| failed(&why))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Puts the terminal back; nobody is left to tell where it is gone.
fn leave() {
    let _left = execute!(stdout(), cursor::Show, terminal::LeaveAlternateScreen);
    let _cooked = terminal::disable_raw_mode();
}
