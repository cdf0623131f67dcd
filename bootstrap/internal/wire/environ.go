package wire

// Environment variables that identify a process. They follow from the parameters of component
// bootstrap local, whose test compares both.
const (
	EnvAddress   = "FERRY_BOOTSTRAP_LOCAL_ADDRESS"
	EnvToken     = "FERRY_BOOTSTRAP_LOCAL_TOKEN"
	EnvNamespace = "FERRY_BOOTSTRAP_LOCAL_NAMESPACE"
	EnvRank      = "FERRY_BOOTSTRAP_LOCAL_RANK"
	EnvFirst     = "FERRY_BOOTSTRAP_LOCAL_FIRST"
	EnvSize      = "FERRY_BOOTSTRAP_LOCAL_SIZE"
	EnvMost      = "FERRY_BOOTSTRAP_LOCAL_MOST"
	EnvSingleton = "FERRY_BOOTSTRAP_LOCAL_SINGLETON"
)
