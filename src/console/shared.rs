//! What all requests of the console share.

use std::sync::Arc;

use crate::api::context::Api;
use crate::console::assets::Assets;
use crate::console::once::Submissions;
use crate::console::texts::{EN, Texts};

/// The API, and what the console keeps beside it.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) api: Api,
    pub(super) assets: Arc<Assets>,
    pub(super) submissions: Arc<Submissions>,
    pub(super) texts: &'static Texts,
}

impl Shared {
    pub(super) fn new(api: Api) -> Self {
        Self { api, assets: Arc::new(Assets::new()), submissions: Arc::default(), texts: &EN }
    }
}
