"""Plans of strategies, their arbitration, and ordered writes of kernel files."""
