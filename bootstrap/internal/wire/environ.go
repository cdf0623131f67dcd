package wire

// The environment by which a launcher tells a process who it is. The names
// follow from the parameters of component bootstrap local, whose test holds
// both together.
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
