"""Pure part of device discovery: what the output of each vendor's tool says about the devices of a node.

`machine` declares what is read from a machine, `xpu` the entries of the file, `vendors` has one module for each vendor,
and `inventory` combines the vendors and keeps the last good result of each.
"""
