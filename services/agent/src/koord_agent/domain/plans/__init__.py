"""From plans of strategies to ordered writes of kernel files."""
