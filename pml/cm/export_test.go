package cm

// SetMostVain changes how many looks for missing messages may find nothing more, and
// returns what undoes it.
func SetMostVain(n int) (undo func()) {
	old := mostVain
	mostVain = n
	return func() { mostVain = old }
}
