"""The claims of placed pods: the writes that bind them, and the pods that wait for each claim."""
