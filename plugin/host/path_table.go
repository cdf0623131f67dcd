package host

// pathTable has the open paths of a plugin. Numbers are not reused, so that late messages of old paths are detected.
type pathTable struct {
	// By path number, which is even.
	outbounds map[uint32]*outbound
	// By path number, which is odd.
	inbounds map[uint32]*inbound
	// Last number in outbounds.
	lastOutbound uint32
	// Last number in inbounds.
	lastInbound uint32
	// Not opened by the plugin yet, oldest first.
	openingPaths []*outbound
}

func newPathTable() pathTable {
	return pathTable{outbounds: map[uint32]*outbound{}, inbounds: map[uint32]*inbound{}}
}

// addOutbound adds a path to a peer, and sets its number.
func (t *pathTable) addOutbound(e *outbound) {
	t.lastOutbound += 2
	e.id = t.lastOutbound
	t.outbounds[e.id] = e
	t.openingPaths = append(t.openingPaths, e)
}

// find returns the path of a number, or nil twice if it has ended. existed reports whether there ever was one.
func (t *pathTable) find(path uint32) (e *outbound, p *inbound, existed bool) {
	if path%2 == 0 {
		return t.outbounds[path], nil, path != 0 && path <= t.lastOutbound
	}
	return nil, t.inbounds[path], path <= t.lastInbound
}
