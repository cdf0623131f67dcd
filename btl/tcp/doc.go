// Package tcp is the BTL between processes on any hosts. A path to a peer runs over several TCP
// connections, called links. It keeps the order of frames, and survives the loss of links.
// docs/wire.md has the bytes, and docs/security.md the guarantees of the handshake.
//
// # Frames
//
// Reserve returns memory of the send buffer, which grows with the data in flight, up to
// btl.tcp.window for each peer. Commit gives the frame the next number of its path. The frame stays
// in the send buffer until the peer has acked it. The owner of the payload of a gathered frame
// lends it until the ack, because it may be retransmitted.
//
// The first small frame after a poll leaves at once, and later ones together at the next poll. Each
// frame leaves on the link with the fewest unacked bytes. The receiver delivers frames in the order
// of their numbers. It stops reading a link whose next frame is out of order, so that order costs no
// copy. After 20 ms without progress, as when a link was lost, it reads such frames into the reorder
// buffer, which takes at most one window.
//
// Acks are cumulative. They travel in the headers of frames, or alone after an eighth of the window,
// after 10 ms, or when the sender requests one. A sender requests an ack when its window is full,
// when it has borrowed payload, and when it must become idle.
//
// # Links
//
// The first link opens with a path, to the first address of the peer's card that answers. Further
// ones open when enough data is in flight. If both ends dial the same link, that of the lower nonce
// stays. Unacked frames of a lost link are retransmitted first, on the other links (path.linkDown). Lost links are
// dialed with backoff.
//
// A path without links fails when the peer's host is silent for btl.tcp.retry_timeout, or when it
// refuses connections repeatedly. The system (TCP_INFO) observes the host, so that a peer that is
// stopped or does not read is not lost. Reconnects without a single ack fail the path too
// (stall_detector.go).
//
// Both ends of a path have a random state number. A process that has lost a path, or is a new
// incarnation, has another one, and never gets older frames.
//
// # Handshake
//
// Before any frame both ends prove that they have the key of the acceptor's card, by HMACs over
// random bytes of both, the two processes and the request. A connection without a proof takes less
// than 1 KiB (16 KiB with TLS) for at most 5 s, and the oldest of 256 closes.
//
// # Polling
//
// All sockets are nonblocking and in one epoll set. A rank that waits for one peer reads the sockets
// of that peer directly (PeerSource). All others are polled at an interval that grows while they are
// silent. A link needs no goroutine. With TLS (tls_tunnel.go) a goroutine runs the TLS handshake only.
//
// The state of a path (path.go, and its halves send_window.go and recv_window.go) and the parts of the handshake are pure.
// Scripts and models test them.
package tcp
