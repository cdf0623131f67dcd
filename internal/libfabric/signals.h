// Protection of the signal handlers of a Go program against libraries.
#ifndef FERRY_LIBFABRIC_SIGNALS_H
#define FERRY_LIBFABRIC_SIGNALS_H

#include <signal.h>

// ferry_signals contains the action for each signal.
typedef struct ferry_signals {
	struct sigaction action[NSIG];
} ferry_signals;

void ferry_keep_signals(ferry_signals *kept);
void ferry_give_back_signals(const ferry_signals *kept);

// ferry_guard makes a crash of this thread before ferry_unguard print one line with the library and its activity did. Both strings
// must remain valid until then.
void ferry_guard(const char *library, const char *did);
void ferry_unguard(void);

#endif
