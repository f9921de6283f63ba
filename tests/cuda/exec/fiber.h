/*
 * A thread of a kernel as a fibre: a stack of its own, and a switch that saves the registers a called function must keep.
 * x86-64 has the switch in a few instructions; elsewhere ucontext serves. The address sanitizer is told about each switch.
 */
#ifndef SUT_EXEC_FIBER_H
#define SUT_EXEC_FIBER_H

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define EXEC_ASAN 1
#else
#define EXEC_ASAN 0
#endif

/* EXEC_UCONTEXT asks for the portable switch where there is the other one, for a test of it. */
#if defined(__x86_64__) && !defined(EXEC_UCONTEXT)
#define EXEC_OWN_SWITCH 1
#else
#define EXEC_OWN_SWITCH 0
#include <ucontext.h>
#endif

namespace exec
{

struct fiber {
    char *stack = nullptr; /* lowest usable byte; a page that cannot be touched lies below */
    std::size_t size = 0;
    void *fake = nullptr; /* the sanitizer's own stack */
#if EXEC_OWN_SWITCH
    void *pointer = nullptr;
#else
    ucontext_t context;
#endif
};

/* A stack; the program ends if the system has no memory for one. */
void fiber_create(fiber *f);
void fiber_destroy(fiber *f);
/* Let f begin at entry() when it is next switched to. entry() must never return. Whatever f was doing is forgotten. */
void fiber_prepare(fiber *f, void (*entry)());
/* Stop here, go on there. `from` is the fibre that runs, or one without a stack for the program's own. */
void fiber_switch(fiber *from, fiber *to);
/* The first thing that entry() does. */
void fiber_arrive(fiber *self);

} // namespace exec

#endif // SUT_EXEC_FIBER_H
