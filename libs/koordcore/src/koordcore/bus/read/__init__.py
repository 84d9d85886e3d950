"""Reading streams: at the leader, and in strict order through a follower."""
