// What libraries do to the signals of a Go program.
#ifndef FERRY_LIBFABRIC_SIGNALS_H
#define FERRY_LIBFABRIC_SIGNALS_H

#include <signal.h>

// ferry_signals is what a process does on each signal.
typedef struct ferry_signals {
	struct sigaction action[NSIG];
} ferry_signals;

void ferry_keep_signals(ferry_signals *kept);
void ferry_give_back_signals(const ferry_signals *kept);

// ferry_guard has the process say, in one line, that a library has taken it down, if that
// happens in this thread before ferry_unguard: did is what the library was about. Both names
// have to stay until then.
void ferry_guard(const char *library, const char *did);
void ferry_unguard(void);

#endif
