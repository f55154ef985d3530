//! The admission list in a node: a change of it drops members, and is told to partners.
//!
//! The shell verifies a list before it comes here, and fetches newer ones. News of a list goes from
//! partner to partner as gossip does, so it reaches a field in as many steps.

use super::{Node, Notice, Output};
use crate::admission::Admission;
use crate::membership::Rival;
use std::sync::Arc as Shared;

impl Node {
    /// Drops whom the list does not admit, and offers it to the partners.
    pub(super) fn admit(&mut self, admission: Shared<Admission>) {
        self.admission = Shared::clone(&admission);
        let effects = self.membership.admit(Shared::clone(&admission), self.now);
        self.apply(effects);
        if let Some(backbone) = &mut self.outside.backbone {
            let effects = backbone.admit(Shared::clone(&admission), self.now);
            self.apply_outside(effects);
        }
        self.outside.contacts.retain(|contact| admission.admits(&contact.key));
        self.mapped = u64::MAX;
        let backbone = self.outside.backbone.iter().flat_map(|backbone| backbone.partners());
        let partners: Vec<_> = self.membership.partners().into_iter().chain(backbone).collect();
        self.outputs.extend(partners.into_iter().map(Output::Offer));
    }

    /// Notes that another process uses this node's key. If this node yields, it says nothing more.
    pub(super) fn rival(&mut self, rival: Rival) {
        if rival.yields {
            self.leaving = true;
            self.membership.vanish();
            self.outside.backbone = None;
        }
        self.out(Output::Notice(Notice::Rival(rival)));
    }
}
