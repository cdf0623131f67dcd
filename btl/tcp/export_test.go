package tcp

// Smallest sets the least limits that the parameters allow.
func Smallest(_ int, p any) {
	q := p.(*params)
	q.Window, q.EagerLimit, q.FrameLimit = 4<<10, 64, 256
}
