"""Facts of the descheduler (drains of nodes, migrations of pods), and explanations of its rounds."""
