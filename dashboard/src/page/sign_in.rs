//! Signing in with a token.

use maud::html;

use crate::{assets, frame, url};

/// The page; `trouble` is why the last attempt failed, `next` where to go then.
#[must_use]
pub fn page(trouble: Option<&str>, next: &str) -> String {
    let body = html! {
        section.card.sign-in {
            h1 { img src=(assets::ICON.address()) alt="" width="36" height="36"; " Evenkeel" }
            p { "Sign in with a token that may view. It stays in this recommender's memory until you sign out, or for twelve hours; the browser keeps no more than the name of the session." }
            @if let Some(trouble) = trouble { p.alarm role="alert" { (trouble) } }
            form method="post" action=(url::to("sign-in", &[])) {
                input type="hidden" name="next" value=(next);
                label for="token" { "Token" }
                input #token type="password" name="token" required autocomplete="off" spellcheck="false";
                button.primary { "Sign in" }
            }
            details {
                summary { "Where does a token come from?" }
                p { "On the recommender's machine:" }
                pre tabindex="0" { "sudo evenkeel-recommender token add anna --role view" }
                p { "In Kubernetes:" }
                pre tabindex="0" { "kubectl create token NAME --audience evenkeel" }
                p { "Or without one, with the credential you have:" }
                pre tabindex="0" { "evenkeel dashboard" }
            }
        }
    };
    frame::bare("Sign in", &body)
}
