// Only a file of this module is used: the definition of the operator's Cluster (Apache-2.0).
module koordstream.test/cloudnative-pg

go 1.25.0

require github.com/cloudnative-pg/cloudnative-pg v1.27.1
