/*
 * Stacks and switches of fibres, see fiber.h. Each stack is a mapping of its own above a page that traps, so that a runaway
 * recursion ends in a segmentation fault and not in a neighbour's variables.
 */
#include "fiber.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#if EXEC_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace exec
{

/* Sanitizers make frames several times larger. */
static const std::size_t stack_size = EXEC_ASAN ? 256 << 10 : 64 << 10;

void fiber_create(fiber *f)
{
    const std::size_t page = (std::size_t)sysconf(_SC_PAGESIZE);
    void *const memory =
        mmap(nullptr, page + stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
        std::fprintf(stderr, "execution layer: no memory for a stack\n");
        std::abort();
    }
    f->stack = (char *)memory + page;
    f->size = stack_size;
}

void fiber_destroy(fiber *f)
{
    const std::size_t page = (std::size_t)sysconf(_SC_PAGESIZE);
    if (f->stack)
        munmap(f->stack - page, page + f->size);
    f->stack = nullptr;
}

#if EXEC_OWN_SWITCH
extern "C" void exec_fiber_jump(void **save, void *load);

__asm__(".text\n"
        ".globl exec_fiber_jump\n"
        ".type exec_fiber_jump, @function\n"
        "exec_fiber_jump:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size exec_fiber_jump, . - exec_fiber_jump\n");
#endif

void fiber_prepare(fiber *f, void (*entry)())
{
#if EXEC_ASAN
    __asan_unpoison_memory_region(f->stack, f->size); /* frames that were abandoned left their red zones */
    f->fake = nullptr;
#endif
#if EXEC_OWN_SWITCH
    /* Six registers, then the address to return to; entry() finds the stack as if it had been called. */
    void **const top = (void **)(f->stack + f->size);
    top[-1] = nullptr;
    top[-2] = (void *)entry;
    for (int k = 3; k <= 8; ++k)
        top[-k] = nullptr;
    f->pointer = top - 8;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->size;
    f->context.uc_link = nullptr;
    makecontext(&f->context, entry, 0);
#endif
}

#if EXEC_ASAN
/* The program's own stack, learnt at the first switch away from it. */
static const void *main_stack;
static std::size_t main_size;
#endif

void fiber_arrive(fiber *self)
{
#if EXEC_ASAN
    const void *bottom;
    std::size_t size;
    __sanitizer_finish_switch_fiber(self->fake, &bottom, &size);
    if (!main_stack) {
        main_stack = bottom;
        main_size = size;
    }
#else
    (void)self;
#endif
}

void fiber_switch(fiber *from, fiber *to)
{
#if EXEC_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stack ? to->stack : main_stack, to->stack ? to->size : main_size);
#endif
#if EXEC_OWN_SWITCH
    exec_fiber_jump(&from->pointer, to->pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
    fiber_arrive(from);
}

} // namespace exec
