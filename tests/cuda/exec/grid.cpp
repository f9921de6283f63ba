/*
 * The scheduler: blocks, threads, barriers, warp exchanges. One operating-system thread runs everything, so that a seed gives
 * the same order again.
 */
#include "grid.h"
#include "exec.h"
#include "fiber.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace exec
{

namespace
{

enum class state { ready, at_barrier, at_grid, in_warp, done };

struct thread {
    place where;
    block *home = nullptr;
    unsigned lane = 0, warp = 0;
    state now = state::ready;
    fiber *stack = nullptr; /* NULL until the thread first runs */
    const char *site = "";
    /* Its part in a warp exchange. */
    warp_op op = warp_op::sync;
    unsigned mask = 0, result = 0;
    int argument = 0, width = 32;
    std::size_t size = 0;
    unsigned char value[8], received[8];
};

struct variable {
    const void *key;
    void *memory;
};

/* How many blocks of an ordinary grid are under way together. */
const unsigned blocks_together = 3;
/* More switches than this in one launch are taken for a loop without end. */
const long long max_switches = 400LL * 1000 * 1000;
const unsigned char poison = 0xff;

struct launch {
    dim3 grid, size;
    std::size_t dynamic_bytes, shared_limit;
    bool cooperative;
    void (*call)(void *);
    void *argument;
    std::vector<std::unique_ptr<block>> blocks;
    std::vector<thread *> ready;
    /* In most launches one warp of each block is late: it runs when nobody else can, so that whoever fails to wait for it
     * does not find it there by chance. */
    std::vector<thread *> late;
    unsigned late_warp = ~0u;
    std::vector<fiber *> idle; /* stacks that are free */
    std::size_t n_blocks = 0, blocks_started = 0, blocks_done = 0;
    std::size_t threads_at_grid = 0;
    const char *grid_site = "";
    long long switches = 0;
    bool stopped = false;
};

launch *current_launch;
thread *current_thread;
fiber main_fiber;
std::vector<std::unique_ptr<fiber>> all_stacks;
char fault_text[512];
std::uint64_t random_state = 0x9e3779b97f4a7c15u;

} // namespace

/* The exchanges of a warp: who waits in one, who is gone, and which of the waiting ones agree with the latest. */
struct warp_state {
    unsigned waiting = 0, gone = 0, agreeing = 0;
    const thread *latest = nullptr;
};

struct block {
    std::vector<thread> threads;
    std::vector<warp_state> warps;
    std::size_t at_barrier = 0, done = 0;
    const char *site = "";
    std::vector<variable> shared;
    std::size_t shared_bytes = 0;
    void *dynamic = nullptr;
    ~block()
    {
        for (const variable &v : shared)
            std::free(v.memory);
        std::free(dynamic);
    }
};

const place *here;

std::uint64_t draw(std::uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state * 0x2545f4914f6cdd1du >> 11) % below;
}

void seed(std::uint64_t value)
{
    random_state = (value + 1) * 0x9e3779b97f4a7c15u | 1;
}

const char *fault()
{
    return fault_text;
}

bool failed()
{
    return fault_text[0] != 0;
}

bool running()
{
    return current_launch != nullptr;
}

void clear_fault()
{
    fault_text[0] = 0;
}

static void to_scheduler()
{
    thread *const self = current_thread;
    fiber_switch(self->stack, &main_fiber);
}

void fail(const char *format, ...)
{
    if (!failed()) {
        va_list arguments;
        va_start(arguments, format);
        (void)std::vsnprintf(fault_text, sizeof fault_text, format, arguments);
        va_end(arguments);
    }
    if (current_launch)
        current_launch->stopped = true;
    if (current_thread) {
        to_scheduler();
        std::abort(); /* a stopped launch resumes nobody */
    }
}

static void enqueue(launch *l, thread *t)
{
    (t->warp == l->late_warp ? l->late : l->ready).push_back(t);
}

static void wake(thread *t)
{
    t->now = state::ready;
    enqueue(current_launch, t);
}

/* Wait in state `now` until someone wakes us. */
static void wait(state now)
{
    current_thread->now = now;
    to_scheduler();
}

void barrier(const char *site)
{
    thread *const t = current_thread;
    block *const b = t->home;
    t->site = site;
    if (b->done > 0)
        fail("%s: __syncthreads() in block %u, but %zu of its %zu threads have left the kernel", site, t->where.block.x,
             b->done, b->threads.size());
    if (b->at_barrier > 0 && std::strcmp(b->site, site) != 0)
        fail("%s: __syncthreads() in block %u, but other threads of the block wait at %s", site, t->where.block.x,
             b->site);
    b->site = site;
    if (++b->at_barrier < b->threads.size()) {
        wait(state::at_barrier);
        return;
    }
    b->at_barrier = 0;
    for (thread &other : b->threads)
        if (&other != t)
            wake(&other);
    wake(t);
    to_scheduler();
}

void grid_barrier(const char *site)
{
    launch *const l = current_launch;
    thread *const t = current_thread;
    t->site = site;
    if (!l->cooperative)
        fail("%s: a grid barrier in a launch that is not cooperative", site);
    if (l->threads_at_grid > 0 && std::strcmp(l->grid_site, site) != 0)
        fail("%s: a grid barrier, but other threads wait at %s", site, l->grid_site);
    for (const auto &b : l->blocks)
        if (b->done > 0)
            fail("%s: a grid barrier, but %zu threads of a block have left the kernel", site, b->done);
    l->grid_site = site;
    const std::size_t all = l->n_blocks * l->blocks[0]->threads.size();
    if (++l->threads_at_grid < all) {
        wait(state::at_grid);
        return;
    }
    l->threads_at_grid = 0;
    for (const auto &b : l->blocks)
        for (thread &other : b->threads)
            wake(&other);
    to_scheduler();
}

static const char *op_name(warp_op op)
{
    static const char *const names[] = {"__syncwarp",      "__shfl_sync",   "__shfl_up_sync", "__shfl_down_sync",
                                        "__shfl_xor_sync", "__ballot_sync", "__any_sync",     "__all_sync"};
    return names[(int)op];
}

static thread *lane_of(thread *t, unsigned lane)
{
    const std::size_t index = (std::size_t)t->warp * 32 + lane;
    return index < t->home->threads.size() ? &t->home->threads[index] : nullptr;
}

/* All threads of the mask are here: hand out the values. */
static void exchange(thread *first)
{
    unsigned vote = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(first->mask >> lane & 1))
            continue;
        thread *const t = lane_of(first, lane);
        int truth;
        std::memcpy(&truth, t->value, sizeof truth);
        if (first->op >= warp_op::ballot && truth)
            vote |= 1u << lane;
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(first->mask >> lane & 1))
            continue;
        thread *const t = lane_of(first, lane);
        t->result = t->op == warp_op::any ? vote != 0 : t->op == warp_op::all ? vote == first->mask : vote;
        if (t->op >= warp_op::ballot || t->op == warp_op::sync)
            continue;
        /* Groups of `width` lanes; a source outside one's own group is oneself. */
        const int width = t->width, own = (int)lane % width, base = (int)lane - own;
        int source = own;
        if (t->op == warp_op::shuffle)
            source = t->argument & (width - 1);
        else if (t->op == warp_op::shuffle_up)
            source = own - t->argument >= 0 ? own - t->argument : own;
        else if (t->op == warp_op::shuffle_down)
            source = own + t->argument < width ? own + t->argument : own;
        else
            source = (own ^ t->argument) < width ? own ^ t->argument : own;
        const unsigned from = (unsigned)(base + source);
        if (!(first->mask >> from & 1)) {
            fail("%s: %s in lane %u reads lane %u, which is not in the mask 0x%08x", t->site, op_name(t->op), lane,
                 from, first->mask);
            return;
        }
        std::memcpy(t->received, lane_of(first, from)->value, t->size);
    }
}

unsigned warp(warp_op op, unsigned mask, void *value, std::size_t size, int argument, int width, const char *site)
{
    thread *const t = current_thread;
    t->op = op;
    t->mask = mask;
    t->argument = argument;
    t->width = width;
    t->size = size;
    t->site = site;
    if (size)
        std::memcpy(t->value, value, size);
    if (!(mask >> t->lane & 1))
        fail("%s: %s: lane %u calls it with a mask 0x%08x that leaves it out", site, op_name(op), t->lane, mask);
    if (width < 1 || width > 32 || (width & (width - 1)) != 0)
        fail("%s: %s: width %d is not a power of two up to 32", site, op_name(op), width);
    warp_state *const w = &t->home->warps[t->warp];
    const unsigned own = 1u << t->lane, others = mask & ~own;
    if (others & w->gone) {
        const unsigned lane = (unsigned)__builtin_ctz(others & w->gone);
        fail("%s: %s: the mask 0x%08x names lane %u, which %s", site, op_name(op), mask, lane,
             lane_of(t, lane) ? "has left the kernel" : "does not exist");
    }
    /* One that is still in an exchange of its own with others will come; the others must be in this one. */
    const thread *const l = w->latest;
    const bool agrees = w->agreeing && l->op == op && l->mask == mask && l->site == site;
    unsigned unsure = others & w->waiting & ~(agrees ? w->agreeing : 0), absent = others & ~w->waiting;
    for (; unsure; unsure &= unsure - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(unsure);
        const thread *const other = lane_of(t, lane);
        if (!(other->mask & own))
            absent |= 1u << lane;
        else if (other->op != op || other->mask != mask || std::strcmp(other->site, site) != 0)
            fail("%s: %s with mask 0x%08x in lane %u, but lane %u waits at %s in %s with mask 0x%08x", site,
                 op_name(op), mask, t->lane, lane, other->site, op_name(other->op), other->mask);
    }
    w->waiting |= own;
    w->agreeing = (agrees ? w->agreeing : 0) | own;
    w->latest = t;
    if (absent) {
        wait(state::in_warp);
    } else {
        exchange(t);
        w->waiting &= ~mask;
        w->agreeing = 0;
        for (unsigned lane = 0; lane < 32; ++lane)
            if (mask >> lane & 1)
                wake(lane_of(t, lane));
        to_scheduler();
    }
    if (size && op != warp_op::sync && op < warp_op::ballot)
        std::memcpy(value, t->received, size);
    return t->result;
}

void *shared(const void *key, std::size_t size, std::size_t alignment)
{
    block *const b = current_thread->home;
    for (const variable &v : b->shared)
        if (v.key == key)
            return v.memory;
    b->shared_bytes += size;
    if (b->shared_bytes + current_launch->dynamic_bytes > current_launch->shared_limit)
        fail("%zu bytes of shared memory and %zu of dynamic shared memory are more than a block may have (%zu)",
             b->shared_bytes, current_launch->dynamic_bytes, current_launch->shared_limit);
    /* The exact size, so that the address sanitizer sees the first byte behind it. */
    void *memory = nullptr;
    if (posix_memalign(&memory, std::max<std::size_t>(alignment, 16), size) != 0)
        fail("%zu bytes of shared memory are not to be had", size);
    std::memset(memory, poison, size);
    b->shared.push_back({key, memory});
    return memory;
}

void *dynamic_shared()
{
    if (!current_thread->home->dynamic)
        fail("dynamic shared memory in a launch without any");
    return current_thread->home->dynamic;
}

void pause()
{
    if (current_thread && draw(4) == 0) {
        wake(current_thread);
        to_scheduler();
    }
}

static void thread_entry()
{
    for (;;) {
        thread *const t = current_thread;
        fiber_arrive(t->stack);
        current_launch->call(current_launch->argument);
        t->now = state::done;
        block *const b = t->home;
        ++b->done;
        b->warps[t->warp].gone |= 1u << t->lane;
        if (b->at_barrier > 0)
            fail("a thread of block %u leaves the kernel while %zu others wait at the barrier of %s", t->where.block.x,
                 b->at_barrier, b->site);
        if (current_launch->threads_at_grid > 0)
            fail("a thread of block %u leaves the kernel while %zu others wait at the grid barrier of %s",
                 t->where.block.x, current_launch->threads_at_grid, current_launch->grid_site);
        for (const thread &other : b->threads)
            if (other.now == state::in_warp && other.warp == t->warp && (other.mask >> t->lane & 1))
                fail("lane %u leaves the kernel while lane %u waits for it at %s", t->lane, other.lane, other.site);
        to_scheduler();
    }
}

static void start_block(launch *l, std::size_t number)
{
    l->blocks.emplace_back(new block);
    block *const b = l->blocks.back().get();
    b->threads.resize((std::size_t)l->size.x * l->size.y * l->size.z);
    b->warps.resize((b->threads.size() + 31) / 32);
    if (b->threads.size() % 32)
        b->warps.back().gone = 0xffffffffu << b->threads.size() % 32;
    if (l->dynamic_bytes) {
        if (posix_memalign(&b->dynamic, 16, l->dynamic_bytes) == 0)
            std::memset(b->dynamic, poison, l->dynamic_bytes);
    }
    const uint3 block_index = {(unsigned)(number % l->grid.x), (unsigned)(number / l->grid.x % l->grid.y),
                               (unsigned)(number / l->grid.x / l->grid.y)};
    for (std::size_t k = 0; k < b->threads.size(); ++k) {
        thread *const t = &b->threads[k];
        const uint3 index = {(unsigned)(k % l->size.x), (unsigned)(k / l->size.x % l->size.y),
                             (unsigned)(k / l->size.x / l->size.y)};
        t->where = {index, block_index, l->size, l->grid};
        t->home = b;
        t->lane = (unsigned)(k % 32);
        t->warp = (unsigned)(k / 32);
        enqueue(l, t);
    }
    ++l->blocks_started;
}

static void retire(launch *l, block *b)
{
    for (thread &t : b->threads)
        if (t.stack)
            l->idle.push_back(t.stack);
    for (auto &slot : l->blocks)
        if (slot.get() == b) {
            slot.swap(l->blocks.back());
            l->blocks.pop_back();
            break;
        }
    ++l->blocks_done;
}

/* Nobody can go on and not everyone is done. */
static void report_deadlock(const launch *l)
{
    std::size_t barrier = 0, grid = 0, warp = 0;
    const char *site = "";
    for (const auto &b : l->blocks)
        for (const thread &t : b->threads) {
            barrier += t.now == state::at_barrier;
            grid += t.now == state::at_grid;
            warp += t.now == state::in_warp;
            if (t.now != state::done)
                site = t.site;
        }
    fail("deadlock: %zu threads wait at a barrier, %zu at a grid barrier, %zu in a warp exchange (one of them at %s)",
         barrier, grid, warp, site);
}

bool run(dim3 grid, dim3 size, std::size_t dynamic_bytes, bool asked, bool cooperative, void (*call)(void *),
         void *argument)
{
    launch l;
    l.grid = grid;
    l.size = size;
    l.dynamic_bytes = dynamic_bytes;
    l.shared_limit = (std::size_t)(asked ? shared_most : shared_unasked);
    l.cooperative = cooperative;
    l.call = call;
    l.argument = argument;
    l.n_blocks = (std::size_t)grid.x * grid.y * grid.z;
    for (const auto &stack : all_stacks)
        l.idle.push_back(stack.get());
    current_launch = &l;
    const std::uint64_t warps = ((std::uint64_t)size.x * size.y * size.z + 31) / 32, drawn = draw(4);
    if (warps > 1 && drawn > 0) /* the first warp has the threads that act for all */
        l.late_warp = drawn < 3 ? 0 : (unsigned)draw(warps);

    std::vector<std::size_t> order(l.n_blocks);
    for (std::size_t k = 0; k < l.n_blocks; ++k)
        order[k] = k;
    for (std::size_t k = l.n_blocks; k > 1; --k)
        std::swap(order[k - 1], order[draw(k)]);

    while (l.blocks_done < l.n_blocks && !l.stopped) {
        while (l.blocks_started < l.n_blocks && (cooperative || l.blocks.size() < blocks_together))
            start_block(&l, order[l.blocks_started]);
        std::vector<thread *> *const queue = l.ready.empty() ? &l.late : &l.ready;
        if (queue->empty()) {
            report_deadlock(&l);
            break;
        }
        std::swap((*queue)[draw(queue->size())], queue->back());
        thread *const t = queue->back();
        queue->pop_back();
        if (!t->stack) {
            if (l.idle.empty()) {
                all_stacks.emplace_back(new fiber);
                fiber_create(all_stacks.back().get());
                l.idle.push_back(all_stacks.back().get());
            }
            t->stack = l.idle.back();
            l.idle.pop_back();
            fiber_prepare(t->stack, thread_entry);
        }
        current_thread = t;
        here = &t->where;
        fiber_switch(&main_fiber, t->stack);
        current_thread = nullptr;
        here = nullptr;
        if (++l.switches > max_switches)
            fail("the launch does not end: more than %lld switches between threads", max_switches);
        if (t->now == state::done) {
            l.idle.push_back(t->stack);
            t->stack = nullptr;
            if (t->home->done == t->home->threads.size() && !l.stopped)
                retire(&l, t->home);
        }
    }
    current_launch = nullptr;
    return !failed();
}

} // namespace exec
