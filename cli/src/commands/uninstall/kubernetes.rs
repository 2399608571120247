//! From a cluster: what is called for others' pods first; then nodes, while everything that they need is there; then objects.

use super::objects::{
    DEFINITION, GROUP, KINDS, NAMESPACE, OwnedKind, PRIORITY, is_given, is_ours, name, release,
};
use super::{StepResult, UninstallArgs, UninstallStep};
use super::{admission, nodes};
use crate::cluster::ApiConnection;
use crate::failure::Failure;

/// Everything that is to be done, or was.
pub(super) fn run(args: &UninstallArgs) -> Result<Vec<UninstallStep>, Failure> {
    let mut cluster = args.server.open()?;
    let found = ClusterInventory::look(&mut cluster, args)?;
    if !args.nodes_only {
        found.refuse_releases(args)?;
    }
    let mut steps = admission::remove(&mut cluster, args)?;
    steps.extend(nodes::restore(&mut cluster, args)?);
    if args.nodes_only || steps.iter().any(|step| step.result == StepResult::Failed) {
        return Ok(steps);
    }
    for (kind, name) in &found.ours {
        steps.push(deleted(&mut cluster, args, kind, name)?);
    }
    for (kind, name) in &found.left {
        steps.push(UninstallStep::new("keep", kind.shown(&args.namespace, name), StepResult::Left).because(
            match kind.name == DEFINITION.name {
                true => "objects of this kind are data of yours; --crds deletes them with it".to_owned(),
                false => format!("{} has objects of others", args.namespace),
            },
        ));
    }
    Ok(steps)
}

/// What is there.
#[derive(Default)]
struct ClusterInventory {
    /// To be deleted, in order.
    ours: Vec<(OwnedKind, String)>,
    left: Vec<(OwnedKind, String)>,
    /// Releases of Helm that made some of it.
    releases: Vec<String>,
}

impl ClusterInventory {
    fn look(cluster: &mut ApiConnection, args: &UninstallArgs) -> Result<Self, Failure> {
        let mut found = Self::default();
        if args.nodes_only {
            return Ok(found);
        }
        let mut foreign = false;
        for kind in KINDS.iter().chain([&PRIORITY]) {
            for object in cluster.all(&kind.path(&args.namespace))? {
                if is_ours(kind, &object) {
                    found.releases.extend(release(&object).map(str::to_owned));
                    found.ours.push((*kind, name(&object).to_owned()));
                } else {
                    foreign |= kind.path("") != kind.path("x") && !is_given(kind, &object);
                }
            }
        }
        for object in cluster.all(&NAMESPACE.path(""))? {
            if name(&object) == args.namespace && is_ours(&NAMESPACE, &object) {
                let place = if foreign { &mut found.left } else { &mut found.ours };
                place.push((NAMESPACE, args.namespace.clone()));
            }
        }
        for object in cluster.all(&DEFINITION.path(""))? {
            if object["spec"]["group"] == GROUP {
                let place = if args.crds { &mut found.ours } else { &mut found.left };
                place.push((DEFINITION, name(&object).to_owned()));
            }
        }
        Ok(found)
    }

    /// Helm would go on believing in what is gone.
    fn refuse_releases(&self, args: &UninstallArgs) -> Result<(), Failure> {
        let Some(release) = self.releases.first() else { return Ok(()) };
        let namespace = &args.namespace;
        let why = format!("Helm's release {release} made its objects, and would go on believing in them");
        let remedy =
            format!("helm uninstall {release} --namespace {namespace}, which restores the nodes before");
        Err(Failure::new("cannot uninstall", format!("namespace {namespace}"), why, remedy))
    }
}

fn deleted(
    cluster: &mut ApiConnection,
    args: &UninstallArgs,
    kind: &OwnedKind,
    name: &str,
) -> Result<UninstallStep, Failure> {
    let shown = kind.shown(&args.namespace, name);
    if !args.yes {
        return Ok(UninstallStep::new("delete", shown, StepResult::WouldDo));
    }
    Ok(match cluster.delete(&kind.one(&args.namespace, name)) {
        Ok(_) => UninstallStep::new("delete", shown, StepResult::Done),
        Err(failure) => UninstallStep::new("delete", shown, StepResult::Failed).because(failure.cause()),
    })
}
