//! Suite `chart`: the Helm chart and the kustomize base, rendered by Helm's and kubectl's own code. What comes out is checked field by
//! field, and the configuration in it by our own programs.

#[path = "cases/chart/admission.rs"]
mod admission;
#[path = "../../kubernetes/tests/apiserver/cel.rs"]
mod cel;
#[path = "cases/chart/configuration.rs"]
mod configuration;
#[path = "cases/chart/life.rs"]
mod life;
#[path = "cases/chart/pair.rs"]
mod pair;
#[path = "cases/chart/parts.rs"]
mod parts;
#[path = "cases/chart/rendering.rs"]
mod rendering;
#[path = "cases/chart/rights.rs"]
mod rights;
