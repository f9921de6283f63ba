/*
 * The runtime's functions: memory, streams, events, graphs. Work is queued and done in order when the program waits. Device
 * memory is one range of addresses that the host cannot touch except inside these functions; each allocation lies between
 * guard zones.
 */
#include "cooperative_groups.h"
#include "cuda_runtime.h"
#include "exec.h"
#include "fiber.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <sys/mman.h>
#include <vector>

#if EXEC_ASAN
#include <sanitizer/asan_interface.h>
#define HIDE(address, size) __asan_poison_memory_region(address, size)
#define SHOW(address, size) __asan_unpoison_memory_region(address, size)
#else
#define HIDE(address, size) ((void)(address), (void)(size))
#define SHOW(address, size) ((void)(address), (void)(size))
#endif

/* An entry of a queue: work to do, or an event to wait for. */
struct exec_work {
    std::function<void()> run;
    cudaEvent_t wait = nullptr;
    long generation = 0;
};
struct exec_stream {
    std::deque<exec_work> queue;
    exec_graph *capture = nullptr;
    int device = -1; /* -1: the default stream, of each device */
};
struct exec_event {
    long recorded = 0, done = 0;
    int device = 0;
};
struct exec_graph {
    std::vector<std::function<void()>> nodes;
};

namespace exec
{

void clear_fault(); /* grid.cpp */

counters count;
bytes traffic;
long arrays_in_use;
device machine;
int watch_every = 1;

namespace
{

const std::size_t arena_size = (std::size_t)1 << 30, guard = 256, page = 4096;
const unsigned char poison_byte = 0xff;

char *arena;
std::size_t top, in_use; /* bytes of the arena that were ever used; bytes allocated now */
struct allocation {
    std::size_t size;
    int device;
};
std::map<char *, allocation> live; /* by address */
std::multimap<std::size_t, char *> spare;
std::map<char *, std::size_t> pinned, managed;
int current_device;
std::map<const void *, int> dynamic_limit;
std::set<exec_stream *> streams;
int allocations_until_failure = -1;
cudaError_t sticky = cudaSuccess, last = cudaSuccess;
exec_stream default_stream;
int open_doors;
std::size_t unlocked; /* bytes of the arena that can be touched now */

/* Device memory can be touched while one of these lives; afterwards not, or in one of so many cases. */
struct door {
    door()
    {
        ++open_doors;
        unlock();
    }
    ~door()
    {
        if (--open_doors > 0 || (watch_every > 1 && draw((std::uint64_t)watch_every) != 0))
            return;
        if (top)
            mprotect(arena, top, PROT_NONE);
        unlocked = 0;
    }
    /* Also when `top` has moved. */
    static void unlock()
    {
        if (unlocked < top)
            mprotect(arena, top, PROT_READ | PROT_WRITE);
        unlocked = top;
    }
};

std::size_t round_up(std::size_t size)
{
    return (size + guard - 1) / guard * guard;
}

bool is_in(const std::map<char *, std::size_t> &ranges, const void *pointer)
{
    auto next = ranges.upper_bound(static_cast<char *>(const_cast<void *>(pointer)));
    return next != ranges.begin() && (--next, (const char *)pointer < next->first + next->second);
}

bool on_device(const void *pointer)
{
    return arena && (const char *)pointer >= arena && (const char *)pointer < arena + arena_size;
}

/* Every allocation's guard zones still hold what they were filled with. */
void check_guards()
{
    const door open;
    for (const auto &a : live) {
        const std::size_t size = a.second.size;
        SHOW(a.first - guard, guard);
        SHOW(a.first + size, round_up(size) - size + guard);
        const char *where = nullptr;
        for (std::size_t k = 0; k < guard && !where; ++k)
            if ((unsigned char)a.first[-1 - (std::ptrdiff_t)k] != poison_byte)
                where = "before";
        for (std::size_t k = size; k < round_up(size) + guard && !where; ++k)
            if ((unsigned char)a.first[k] != poison_byte)
                where = "behind";
        if (where) {
            memset(a.first - guard, poison_byte, guard);
            memset(a.first + size, poison_byte, round_up(size) - size + guard);
        }
        HIDE(a.first - guard, guard);
        HIDE(a.first + size, round_up(size) - size + guard);
        if (where)
            fail("something wrote %s a device allocation of %zu bytes", where, size);
    }
}

cudaError_t remember(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

/* What a call returns when all else went well: the error of earlier work, if there was one. */
cudaError_t outcome()
{
    if (failed() && sticky == cudaSuccess)
        sticky = cudaErrorLaunchFailure;
    return remember(sticky);
}

exec_stream *resolve(cudaStream_t stream)
{
    return stream ? stream : &default_stream;
}

void push(exec_stream *s, std::function<void()> run)
{
    if (s->capture)
        s->capture->nodes.push_back(std::move(run));
    else
        s->queue.push_back({std::move(run), nullptr, 0});
}

bool can_go(const exec_stream *s)
{
    return !s->queue.empty() && (!s->queue.front().wait || s->queue.front().wait->done >= s->queue.front().generation);
}

/* One piece of work of a random stream that has some. False when nothing can go on. */
bool work()
{
    std::vector<exec_stream *> able;
    if (can_go(&default_stream))
        able.push_back(&default_stream);
    for (exec_stream *s : streams)
        if (can_go(s))
            able.push_back(s);
    if (able.empty())
        return false;
    exec_stream *const s = able[draw(able.size())];
    const exec_work now = std::move(s->queue.front());
    s->queue.pop_front();
    if (now.run && !failed())
        now.run();
    return true;
}

void drain(exec_stream *s)
{
    const door open; /* once for all that is queued: it is a system call */
    ++count.synchronisations;
    while (!s->queue.empty())
        if (!work()) {
            fail("a stream waits for an event that nothing will record");
            s->queue.clear();
        }
}

void drain_all()
{
    drain(&default_stream);
    for (exec_stream *s : streams)
        drain(s);
}

bool capturing()
{
    for (const exec_stream *s : streams)
        if (s->capture)
            return true;
    return default_stream.capture != nullptr;
}

/* Calls that wait or allocate are not allowed while a stream records a graph. */
#define REFUSE_IN_CAPTURE()                                     \
    do {                                                        \
        if (capturing())                                        \
            return remember(cudaErrorStreamCaptureUnsupported); \
    } while (0)

} // namespace

void reset()
{
    clear_fault();
    sticky = last = cudaSuccess;
}

std::size_t memory_in_use()
{
    return in_use;
}

int allocations()
{
    return (int)(live.size() + pinned.size() + managed.size());
}

void queue(exec_stream *stream, std::function<void()> body)
{
    push(resolve(stream), [body] {
        const door open;
        body();
    });
}

bool is_allocated(const void *begin, std::size_t size)
{
    if (is_in(managed, begin))
        return true;
    auto next = live.upper_bound(static_cast<char *>(const_cast<void *>(begin)));
    return next != live.begin() && (--next, (const char *)begin + size <= next->first + next->second.size);
}

void fail_allocation(int n)
{
    allocations_until_failure = n;
}

static bool allocation_fails()
{
    return allocations_until_failure >= 0 && allocations_until_failure-- == 0;
}

static void call_function(void *body)
{
    (*static_cast<std::function<void()> *>(body))();
}

cudaError_t enqueue(dim3 grid, dim3 block, std::size_t dynamic_bytes, bool cooperative, const void *kernel,
                    std::function<void()> body, cudaStream_t stream)
{
    const std::size_t threads = (std::size_t)block.x * block.y * block.z;
    const std::size_t blocks = (std::size_t)grid.x * grid.y * grid.z;
    const auto limit = dynamic_limit.find(kernel);
    if (threads == 0 || threads > 1024 || block.z > 64 || blocks == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
        grid.z > 65535)
        return remember(cudaErrorInvalidConfiguration);
    if (dynamic_bytes > (std::size_t)(limit == dynamic_limit.end() ? 48 << 10 : limit->second))
        return remember(cudaErrorInvalidValue);
    if (stream && stream->device != current_device)
        return remember(cudaErrorInvalidResourceHandle);
    if (!machine.has_code)
        return remember(cudaErrorNoKernelImageForDevice);
    if (cooperative && blocks > (std::size_t)(machine.processors * machine.blocks_per_processor))
        return remember(cudaErrorCooperativeLaunchTooLarge);
    if (sticky != cudaSuccess)
        return remember(sticky);
    const bool asked = limit != dynamic_limit.end();
    push(resolve(stream), [=]() mutable {
        ++count.launches;
        {
            const door open;
            (void)run(grid, block, dynamic_bytes, asked, cooperative, call_function, &body);
        }
        check_guards();
    });
    return cudaSuccess;
}

cudaError_t set_dynamic_limit(const void *kernel, int bytes)
{
    if (bytes < 0 || bytes > shared_most)
        return remember(cudaErrorInvalidValue);
    dynamic_limit[kernel] = bytes;
    return cudaSuccess;
}

cudaError_t attributes(cudaFuncAttributes *attributes)
{
    attributes->binaryVersion = machine.architecture;
    return machine.has_code ? cudaSuccess : remember(cudaErrorNoKernelImageForDevice);
}

cudaError_t occupancy(int *blocks, int threads)
{
    if (threads < 1 || threads > 1024)
        return remember(cudaErrorInvalidValue);
    *blocks = machine.blocks_per_processor;
    return cudaSuccess;
}

} // namespace exec

using namespace exec;

/* A text that outlives the call: a thread that waits may be abandoned, and frees nothing then. */
static const char *site_of(const char *file, int line)
{
    static std::set<std::string> sites;
    return sites.insert(std::string(file) + ":" + std::to_string(line)).first->c_str();
}

void cooperative_groups::grid_group::sync(const char *file, int line) const
{
    grid_barrier(site_of(file, line));
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = last;
    last = sticky;
    return error;
}

cudaError_t cudaPeekAtLastError()
{
    return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorECCUncorrectable: return "cudaErrorECCUncorrectable";
    case cudaErrorNvlinkUncorrectable: return "cudaErrorNvlinkUncorrectable";
    case cudaErrorMpsClientTerminated: return "cudaErrorMpsClientTerminated";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchTimeout: return "cudaErrorLaunchTimeout";
    case cudaErrorAssert: return "cudaErrorAssert";
    case cudaErrorHardwareStackError: return "cudaErrorHardwareStackError";
    case cudaErrorIllegalInstruction: return "cudaErrorIllegalInstruction";
    case cudaErrorMisalignedAddress: return "cudaErrorMisalignedAddress";
    case cudaErrorInvalidAddressSpace: return "cudaErrorInvalidAddressSpace";
    case cudaErrorInvalidPc: return "cudaErrorInvalidPc";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge: return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorLaunchFailure && failed() ? fault() : cudaGetErrorName(error);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = machine.driver;
    return cudaSuccess;
}

/* What every call finds first. */
static cudaError_t driver_state()
{
    if (machine.driver < CUDART_VERSION)
        return remember(cudaErrorInsufficientDriver);
    return machine.devices > 0 ? cudaSuccess : remember(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = machine.devices;
    return driver_state();
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return driver_state();
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= machine.devices)
        return remember(cudaErrorInvalidDevice);
    current_device = device;
    return driver_state();
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (device < 0 || device >= machine.devices)
        return remember(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = machine.processors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = machine.architecture / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = machine.architecture % 10; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    REFUSE_IN_CAPTURE();
    drain_all();
    return outcome();
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    void *const p = const_cast<void *>(pointer);
    auto next = live.upper_bound(static_cast<char *>(p));
    const bool known = next != live.begin() && (--next, static_cast<char *>(p) < next->first + next->second.size);
    if (known)
        *attributes = {cudaMemoryTypeDevice, next->second.device, p, nullptr};
    else if (is_in(managed, p))
        *attributes = {cudaMemoryTypeManaged, current_device, p, p};
    else if (is_in(pinned, p))
        *attributes = {cudaMemoryTypeHost, current_device, p, p};
    else
        *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, on_device(p) ? nullptr : p};
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, std::size_t size)
{
    REFUSE_IN_CAPTURE();
    *pointer = nullptr;
    if (size == 0)
        return cudaSuccess;
    if (size > arena_size || allocation_fails())
        return remember(cudaErrorMemoryAllocation);
    if (!arena) {
        void *const memory = mmap(nullptr, arena_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return remember(cudaErrorMemoryAllocation);
        arena = static_cast<char *>(memory);
    }
    const std::size_t room = round_up(size) + 2 * guard;
    char *from;
    const auto found = spare.find(room);
    if (found != spare.end()) {
        from = found->second;
        spare.erase(found);
    } else {
        if (top + room > arena_size)
            return remember(cudaErrorMemoryAllocation);
        from = arena + top;
        top = (top + room + page - 1) / page * page;
    }
    char *const p = from + guard;
    const door open;
    SHOW(from, room);
    memset(from, poison_byte, room);
    HIDE(from, guard);
    HIDE(p + size, room - guard - size);
    live[p] = {size, current_device};
    in_use += size;
    *pointer = p;
    return cudaSuccess;
}

cudaError_t cudaMallocManaged(void **pointer, std::size_t size, unsigned)
{
    REFUSE_IN_CAPTURE();
    *pointer = allocation_fails() ? nullptr : std::malloc(size ? size : 1);
    if (!*pointer)
        return remember(cudaErrorMemoryAllocation);
    memset(*pointer, poison_byte, size);
    managed[static_cast<char *>(*pointer)] = size;
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    if (!pointer)
        return cudaSuccess;
    REFUSE_IN_CAPTURE();
    drain_all(); /* as on a device: freeing waits */
    if (managed.erase(static_cast<char *>(pointer))) {
        std::free(pointer);
        return outcome();
    }
    const auto found = live.find(static_cast<char *>(pointer));
    if (found == live.end())
        return remember(cudaErrorInvalidValue);
    check_guards();
    const std::size_t room = round_up(found->second.size) + 2 * guard;
    in_use -= found->second.size;
    HIDE(found->first, found->second.size);
    spare.insert({room, found->first - guard});
    live.erase(found);
    return outcome();
}

cudaError_t cudaMallocHost(void **pointer, std::size_t size)
{
    REFUSE_IN_CAPTURE();
    *pointer = allocation_fails() ? nullptr : std::malloc(size ? size : 1);
    if (!*pointer)
        return remember(cudaErrorMemoryAllocation);
    memset(*pointer, poison_byte, size);
    pinned[static_cast<char *>(*pointer)] = size;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer)
{
    if (!pointer)
        return cudaSuccess;
    drain_all();
    if (!pinned.erase(static_cast<char *>(pointer)))
        return remember(cudaErrorInvalidValue);
    std::free(pointer);
    return outcome();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t size, cudaMemcpyKind kind, cudaStream_t stream)
{
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (size && kind != cudaMemcpyDefault &&
        ((on_device(to) != to_device && !is_in(managed, to)) ||
         (on_device(from) != from_device && !is_in(managed, from))))
        return remember(cudaErrorInvalidValue);
    if (sticky != cudaSuccess)
        return remember(sticky);
    push(resolve(stream), [=] {
        ++count.copies;
        const door open;
        memcpy(to, from, size);
    });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, std::size_t size, cudaMemcpyKind kind)
{
    REFUSE_IN_CAPTURE();
    drain_all();
    const cudaError_t error = cudaMemcpyAsync(to, from, size, kind, nullptr);
    drain(&default_stream);
    return error != cudaSuccess ? error : outcome();
}

cudaError_t cudaMemsetAsync(void *to, int value, std::size_t size, cudaStream_t stream)
{
    if (size && !on_device(to) && !is_in(managed, to))
        return remember(cudaErrorInvalidValue);
    if (sticky != cudaSuccess)
        return remember(sticky);
    push(resolve(stream), [=] {
        ++count.sets;
        const door open;
        memset(to, value, size);
    });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, std::size_t size)
{
    REFUSE_IN_CAPTURE();
    const cudaError_t error = cudaMemsetAsync(to, value, size, nullptr);
    drain(&default_stream);
    return error != cudaSuccess ? error : outcome();
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = new exec_stream;
    (*stream)->device = current_device;
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream || !streams.count(stream))
        return remember(cudaErrorInvalidResourceHandle);
    drain(stream);
    streams.erase(stream);
    delete stream;
    return outcome();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    REFUSE_IN_CAPTURE();
    drain(resolve(stream));
    return outcome();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    resolve(stream)->queue.push_back({nullptr, event, event->recorded});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new exec_event;
    (*event)->device = current_device;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    drain_all();
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if ((stream ? stream->device : current_device) != event->device || (stream && !streams.count(stream)))
        return remember(cudaErrorInvalidResourceHandle);
    const long generation = ++event->recorded;
    push(resolve(stream), [=] { event->done = generation; });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    REFUSE_IN_CAPTURE();
    ++count.synchronisations;
    while (event->done < event->recorded)
        if (!work()) {
            fail("an event waits for work that cannot go on");
            break;
        }
    return outcome();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    if (!stream || stream->capture)
        return remember(cudaErrorStreamCaptureUnsupported); /* the default stream cannot be captured */
    stream->capture = new exec_graph;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = stream ? stream->capture : nullptr;
    if (!*graph)
        return remember(cudaErrorInvalidValue);
    stream->capture = nullptr;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    *status = resolve(stream)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    *executable = new exec_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    if (sticky != cudaSuccess)
        return remember(sticky);
    for (const auto &node : executable->nodes)
        push(resolve(stream), node);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    delete executable;
    return cudaSuccess;
}
