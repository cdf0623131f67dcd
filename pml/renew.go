package pml

import "github.com/ferrympi/ferry/framework"

// Renewer is an optional ability of a Module: when a process has given another up, they can
// exchange messages again, on communicators that are made from then on.
type Renewer interface {
	// Over returns the lives of other processes that have not failed, and with which nothing
	// is exchanged any more. Some may have closed their session.
	Over() []framework.Life
	// Renew ends all that is pending with a life of another process, and forgets that there
	// was any path. Learn, with the life's newest card, is next. In between both ends have
	// been renewed; the other's first frames may come before Learn is called here. A life
	// that has failed stays so. GiveUp is not called.
	Renew(peer framework.Life)
}
