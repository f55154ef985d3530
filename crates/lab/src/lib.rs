//! A small lab: network namespaces, shaped links, processes that are always ended.
