"""The objects DrainNode and DrainNodeGroup, and the keys around them."""
