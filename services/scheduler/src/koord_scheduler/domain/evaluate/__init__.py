"""From a pod to its best node: filter and score nodes, with cached answers per equivalence class."""
