//! Asking the node's kubelet by order.

use std::path::PathBuf;

use evenkeel_border::coded::Coded as _;
use evenkeel_border::order::Kubelet;
use evenkeel_border::told::{Kubelets, PodList};
use evenkeel_net::get::{HttpsEndpoint, NoAnswer, Vouchers};
use evenkeel_proto::v1;

use crate::pods::{MOST_LISTED, look};

/// What it says.
pub(crate) async fn ask(order: Kubelet) -> Kubelets {
    let Kubelet { host, port, name, authorities, token } = order;
    let asked = HttpsEndpoint {
        host,
        port,
        name,
        authorities: PathBuf::from(authorities.0),
        token: PathBuf::from(token.0),
    };
    let vouchers = Vouchers { authorities: authorities.1.0, token: token.1.0 };
    let listed = match look(&asked, vouchers).await {
        Ok(listed) => listed,
        Err(NoAnswer::Refused(status, words)) => return Kubelets::Refused((status, words)),
        Err(NoAnswer::Failed(why)) => return Kubelets::Failed(why),
    };
    let pods = listed.pods.iter().map(v1::PodRequirements::from).collect();
    let told = Kubelets::Listed(PodList { pods, refused: listed.refused });
    // More would end the border.
    if told.message().len() > MOST_LISTED {
        return Kubelets::Failed(format!("its pods take more than {} MiB", MOST_LISTED >> 20));
    }
    told
}
