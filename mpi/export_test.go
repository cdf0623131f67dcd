package mpi

// IsBroken says whether c's collectives work no more, without being in one.
func IsBroken(c *Comm) bool { return c.collective.works() != nil }
