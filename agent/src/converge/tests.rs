//! Tables of the converge loop against a fake kernel.
