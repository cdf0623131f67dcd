package cm

// SetMostVain changes how many searches for missing messages may find nothing more, and
// returns what undoes it.
func SetMostVain(n int) (undo func()) { return set(&mostVain, n) }

// SetDoubtSteps changes for how long the bootstrap's word is waited for, and returns
// what undoes it.
func SetDoubtSteps(n int) (undo func()) { return set(&doubtSteps, n) }

func set(v *int, n int) (undo func()) {
	old := *v
	*v = n
	return func() { *v = old }
}
