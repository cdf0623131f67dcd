package threads

import "github.com/ferrympi/ferry/framework"

// Params are the parameters of goroutine ranks; each is threads.NAME. FillDefaults gives
// them their defaults.
type Params struct {
	EagerLimit      framework.Size `param:"eager_limit" default:"16KiB" min:"64" max:"1MiB" unit:"bytes" level:"tuner" scope:"process" doc:"Longest message between goroutine ranks that is copied twice: by its sender, who goes on at once, and by its receiver. The payload of a longer one is copied once, when it has matched."`
	UnexpectedLimit framework.Size `param:"unexpected_limit" default:"1MiB" min:"16KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Memory for messages that wait for their receives at each goroutine rank. The payload of further messages stays in the buffers of their senders."`
}
