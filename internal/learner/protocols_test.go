package learner

// protocol is the option of the simulations. The names are those of the rendezvous protocols in
// package pml/ob1/selector.
type protocol uint8

const (
	pipeline protocol = iota
	get
	put
	split
	pipelineFull
	pipelineNT
	protocols

	allProtocols = Set[protocol](1<<protocols - 1)
	anyPipeline  = Set[protocol](1<<pipeline | 1<<pipelineFull | 1<<pipelineNT)
)

// newSim returns a selector for single messages, or with a longer burst for windows.
func newSim(burst int, guess protocol) Selector[protocol] {
	shape := Shape{Options: int(protocols), Probe: burst, Run: 4}
	if burst > 1 {
		shape.Skip, shape.Run = 1, 64
	}
	return New(shape, guess)
}
