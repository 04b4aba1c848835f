// Chains of short kernels, issued in every way that CUDA offers; one library with a plain C interface (see native.py).
// What must not live here: timing, and a way of issuing that does other work than its neighbours.
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <vector>

enum Issue { STREAM, GRAPH, DEVICE_GRAPH, SCHEDULER, CONDITIONAL, DYNAMIC, INLINE, TAIL, FIRE_AND_FORGET };
enum Sync { AT_END, EACH_CHAIN, EACH_KERNEL };
enum Refresh { NONE, RECAPTURE, EXEC_UPDATE, GRAPH_PER_SIZE };
enum Decision { NO_DECISION, IF, WHILE, SWITCH, SPAWN };

struct Plan {  // field by field as in _launch_native.Plan
  int64_t n;
  float *x, *y, *staged, *host;
  const float* keys;
  int32_t* seen;
  float taken;
  int32_t nodes, width, iterations, issue, sync, refresh, decision, fork_join, children, queue, sizes;
};

// Iterations begun or, in a chain, ended; the latest decision; next item of the queue; item in work.
struct State {
  int32_t turn, choice, head, item;
};

constexpr int BLOCK = 256;

// One link of the chain: y = x / 2 first, then y = x + y / 2. The first notes its length, the last counts the turn.
__device__ void link_body(const float* x, float* y, int64_t n, bool first, bool last, State* state, int32_t* seen) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = first ? 0.5f * x[i] : x[i] + 0.5f * y[i];
  if (i == 0 && first && seen) seen[state->turn] = (int32_t)n;
  if (i == 0 && last) ++state->turn;
}

__global__ void link_kernel(const float* x, float* y, int64_t n, bool first, bool last, State* state, int32_t* seen) {
  link_body(x, y, n, first, last, state, seen);
}

// The last link of a chain that launches its own graph again until all iterations are done.
__global__ void link_again(const float* x, float* y, int64_t n, bool first, State* state, int32_t* seen, int32_t iterations) {
  link_body(x, y, n, first, true, state, seen);
  if (blockIdx.x + threadIdx.x == 0 && state->turn < iterations)
    cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}

// A link over the slice of an item (-1: of the one in work); items lie one behind the other in x and y.
__global__ void item_link(const float* x, float* y, int64_t n, bool first, bool last, State* state, int32_t* seen, int32_t named) {
  const int32_t item = named < 0 ? state->item : named;
  const int64_t offset = (int64_t)item * n;
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[offset + i] = first ? 0.5f * x[offset + i] : x[offset + i] + 0.5f * y[offset + i];
  if (i == 0 && last) seen[item] = ++state->turn;
}

// Claims items and launches the links of each, one by one; links run in the order of their launches.
__global__ void spawn_items(Plan p, State* state) {
  const unsigned grid = (unsigned)((p.n + BLOCK - 1) / BLOCK);
  for (int32_t item = atomicAdd(&state->head, 1); item < p.iterations; item = atomicAdd(&state->head, 1))
    for (int32_t k = 0; k < p.nodes; ++k)
      item_link<<<grid, BLOCK>>>(p.x, p.y, p.n, k == 0, k + 1 == p.nodes, state, p.seen, item);
}

// Claims the next item, then launches its graph and, behind that, itself.
__global__ void claim_items(State* state, int32_t items, cudaGraphExec_t work) {
  const int32_t item = atomicAdd(&state->head, 1);
  if (item >= items) return;
  state->item = item;
  cudaGraphLaunch(work, cudaStreamGraphTailLaunch);
  cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}

// Launches another graph: when this one has ended, or at once, beside what follows here.
__global__ void launch_other(cudaGraphExec_t other, bool at_once) {
  cudaGraphLaunch(other, at_once ? cudaStreamGraphFireAndForget : cudaStreamGraphTailLaunch);
}

__device__ int32_t decided(const Plan& p, int32_t turn) {
  const float key = p.keys[turn];
  if (p.decision == IF) return key < p.taken;
  if (p.decision == WHILE) return turn + 1 < p.iterations && key >= 0.0f;
  if (p.decision == SWITCH) return min((int32_t)(key * p.width), p.width - 1);
  return turn + 1 < p.iterations ? (int32_t)(p.n / 2 + (int64_t)(key * (p.n / 2))) : (int32_t)p.n;
}

__device__ int32_t decide_body(const Plan& p, State* state) {
  const int32_t turn = state->turn++;
  const int32_t choice = decided(p, turn);
  p.seen[turn] = p.decision == SPAWN ? choice : p.decision == WHILE ? turn : -1;
  state->choice = choice;
  return choice;
}

__global__ void decide(Plan p, State* state) { decide_body(p, state); }

__global__ void decide_in_graph(Plan p, State* state, cudaGraphConditionalHandle handle) {
  cudaGraphSetConditional(handle, decide_body(p, state));
}

// What a decision leads to: a link that notes which alternative ran.
__global__ void alternative(const float* x, float* y, int64_t n, float weight, int32_t which, State* state, int32_t* seen) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * weight + 0.5f * y[i];
  if (i == 0) seen[state->turn - 1] = which;
}

__global__ void decide_and_launch(Plan p, State* state) {
  if (decide_body(p, state))
    alternative<<<(unsigned)((p.n + BLOCK - 1) / BLOCK), BLOCK>>>(p.x, p.y, p.n, 1.0f, 1, state, p.seen);
}

// Added up over the rounds of a step, from zero, so that a child that ran twice or not at all shows.
__device__ void add_square(const float* x, float* y, int64_t i) { y[i] = fmaf(x[i], x[i], y[i]); }

__global__ void child(const float* x, float* y, int64_t begin, int64_t end) {
  const int64_t i = begin + (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < end) add_square(x, y, i);
}

__host__ __device__ inline int64_t part(int64_t length, int32_t index, int32_t children) { return length * index / children; }

__global__ void parent_launches(Plan p, State* state) {
  const int64_t length = decide_body(p, state);
  for (int32_t c = 0; c < p.children; ++c) {
    const int64_t begin = part(length, c, p.children), end = part(length, c + 1, p.children);
    if (end > begin) child<<<(unsigned)((end - begin + BLOCK - 1) / BLOCK), BLOCK>>>(p.x, p.y, begin, end);
  }
}

// The same work without children: every thread works the length out for itself; one of them notes it.
__global__ void parent_inline(Plan p, State* state, int32_t turn) {
  const int64_t length = decided(p, turn);
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < length; i += (int64_t)gridDim.x * blockDim.x)
    add_square(p.x, p.y, i);
  if (blockIdx.x == 0 && threadIdx.x == 0) p.seen[turn] = (int32_t)length;
}

struct Failed { cudaError_t code; int line; };
static void attempt(cudaError_t code, int line) { if (code != cudaSuccess) throw Failed{code, line}; }
#define TRY(call) attempt((call), __LINE__)

static unsigned blocks(int64_t n) { return (unsigned)((n + BLOCK - 1) / BLOCK); }

struct Runner {
  Plan p;
  State* state = nullptr;
  int32_t* told = nullptr;  // pinned: the host's copy of a decision, or its queue
  cudaStream_t own = nullptr, side = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;
  std::vector<cudaGraphExec_t> execs;
  std::vector<cudaGraph_t> graphs;

  int64_t graph_bytes = 0;

  explicit Runner(const Plan& plan) : p(plan) {}

  void open() {
    TRY(cudaMalloc(&state, sizeof(State)));
    TRY(cudaMemset(state, 0, sizeof(State)));
    TRY(cudaHostAlloc(&told, p.iterations * sizeof(int32_t), cudaHostAllocDefault));
    TRY(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    TRY(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    TRY(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    if (p.issue == GRAPH) open_graphs_measured();
    if (p.issue == DEVICE_GRAPH) instantiate(captured([&](cudaStream_t s) { chain(s, p.n, true); }), true);
    if (p.issue == SCHEDULER) {
      instantiate(captured([&](cudaStream_t s) { item_chain(s); }), true);
      instantiate(captured([&](cudaStream_t s) { claim_items<<<1, 1, 0, s>>>(state, p.iterations, execs[0]); }), true);
    }
    if (p.issue == TAIL || p.issue == FIRE_AND_FORGET) {
      instantiate(captured([&](cudaStream_t s) { second_chain(s); }), true);
      instantiate(captured([&](cudaStream_t s) {
        launch_other<<<1, 1, 0, s>>>(execs[0], p.issue == FIRE_AND_FORGET);
        chain(s, p.n, false);
      }), true);
    }
    if (p.issue == CONDITIONAL) open_conditional();
    TRY(cudaDeviceSynchronize());
  }

  // What the graphs take of the device's memory, as far as the driver's free memory tells.
  void open_graphs_measured() {
    size_t before = 0, after = 0, total = 0;
    TRY(cudaDeviceSynchronize());
    TRY(cudaMemGetInfo(&before, &total));
    open_graphs();
    for (auto exec : execs) TRY(cudaGraphUpload(exec, own));
    TRY(cudaStreamSynchronize(own));
    TRY(cudaMemGetInfo(&after, &total));
    graph_bytes = before > after ? (int64_t)(before - after) : 0;
  }

  void open_graphs() {
    if (p.decision == IF || p.decision == SWITCH) {
      instantiate(captured([&](cudaStream_t s) { first_and_decide(s); }));
      for (int32_t i = 0; i < (p.decision == IF ? 1 : p.width); ++i)
        instantiate(captured([&](cudaStream_t s) { alternatives(s, i); }));
    } else if (p.decision == WHILE) {
      instantiate(captured([&](cudaStream_t s) { body(s), decide<<<1, 1, 0, s>>>(p, state), tell(s); }));
    } else if (p.queue) {
      instantiate(captured([&](cudaStream_t s) { item_chain(s); }));
    } else {
      const int count = p.refresh == GRAPH_PER_SIZE ? p.sizes : 1;
      for (int32_t i = 0; i < count; ++i) instantiate(captured([&](cudaStream_t s) { chain(s, size_of(i), false); }));
    }
  }

  int64_t size_of(int32_t turn) const { return p.refresh == NONE ? p.n : p.n - (turn % p.sizes) * (p.n / (2 * p.sizes)); }

  template <class Issuer>
  cudaGraph_t captured(Issuer issue) {
    cudaGraph_t graph;
    TRY(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal));
    issue(own);
    TRY(cudaStreamEndCapture(own, &graph));
    TRY(cudaGetLastError());
    return graph;
  }

  void instantiate(cudaGraph_t graph, bool from_device = false) {
    cudaGraphExec_t exec;
    graphs.push_back(graph);
    TRY(cudaGraphInstantiate(&exec, graph, from_device ? cudaGraphInstantiateFlagDeviceLaunch : 0));
    execs.push_back(exec);
    if (!from_device) return;
    TRY(cudaGraphUpload(exec, own));
    TRY(cudaStreamSynchronize(own));
  }

  // With a copy of the next input beside the chain: behind each other, or on branches of their own.
  void chain(cudaStream_t s, int64_t n, bool again) {
    if (p.host) {
      if (p.fork_join) TRY(cudaEventRecord(forked, s));
      if (p.fork_join) TRY(cudaStreamWaitEvent(side, forked, 0));
      TRY(cudaMemcpyAsync(p.staged, p.host, p.n * sizeof(float), cudaMemcpyHostToDevice, p.fork_join ? side : s));
      if (p.fork_join) TRY(cudaEventRecord(joined, side));
    }
    for (int32_t k = 0; k < p.nodes; ++k) {
      const bool last = k + 1 == p.nodes;
      if (last && again) link_again<<<blocks(n), BLOCK, 0, s>>>(p.x, p.y, n, k == 0, state, p.seen, p.iterations);
      else link_kernel<<<blocks(n), BLOCK, 0, s>>>(p.x, p.y, n, k == 0, last, state, p.seen);
      if (p.sync == EACH_KERNEL && p.issue == STREAM) TRY(cudaStreamSynchronize(s));
    }
    if (p.host && p.fork_join) TRY(cudaStreamWaitEvent(s, joined, 0));
  }

  // The chain into an array of its own; it leaves the count of iterations alone.
  void second_chain(cudaStream_t s) {
    for (int32_t k = 0; k < p.nodes; ++k)
      link_kernel<<<blocks(p.n), BLOCK, 0, s>>>(p.x, p.staged, p.n, k == 0, false, state, nullptr);
  }

  void item_chain(cudaStream_t s) {
    for (int32_t k = 0; k < p.nodes; ++k)
      item_link<<<blocks(p.n), BLOCK, 0, s>>>(p.x, p.y, p.n, k == 0, k + 1 == p.nodes, state, p.seen, -1);
  }

  void body(cudaStream_t s) {
    for (int32_t k = 0; k < p.nodes; ++k)
      link_kernel<<<blocks(p.n), BLOCK, 0, s>>>(p.x, p.y, p.n, false, false, state, nullptr);
  }

  void alternatives(cudaStream_t s, int32_t which) {
    const int32_t shown = p.decision == IF ? 1 : which;
    alternative<<<blocks(p.n), BLOCK, 0, s>>>(p.x, p.y, p.n, (float)(which + 1), shown, state, p.seen);
  }

  void start(cudaStream_t s) { link_kernel<<<blocks(p.n), BLOCK, 0, s>>>(p.x, p.y, p.n, true, false, state, nullptr); }

  void tell(cudaStream_t s) { TRY(cudaMemcpyAsync(told, &state->choice, sizeof(int32_t), cudaMemcpyDeviceToHost, s)); }

  void first_and_decide(cudaStream_t s) {
    start(s);
    decide<<<1, 1, 0, s>>>(p, state);
    tell(s);
  }

  int32_t hear(cudaStream_t s) {
    TRY(cudaStreamSynchronize(s));
    return *told;
  }

  // first link -> decision -> one of the bodies; for a loop the decision is the body's last node.
  void open_conditional() {
    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;
    const bool loop = p.decision == WHILE;
    TRY(cudaGraphCreate(&graph, 0));
    TRY(cudaGraphConditionalHandleCreate(&handle, graph, loop ? 1 : 0, cudaGraphCondAssignDefault));
    std::vector<cudaGraphNode_t> before = capture_into(graph, {}, [&](cudaStream_t s) {
      start(s);
      if (!loop) decide_in_graph<<<1, 1, 0, s>>>(p, state, handle);
    });
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = loop ? cudaGraphCondTypeWhile : p.decision == IF ? cudaGraphCondTypeIf : cudaGraphCondTypeSwitch;
    params.conditional.size = p.decision == SWITCH ? p.width : 1;
    cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
    TRY(cudaGraphAddNode(&node, graph, before.data(), nullptr, before.size(), &params));
#else
    TRY(cudaGraphAddNode(&node, graph, before.data(), before.size(), &params));
#endif
    for (unsigned i = 0; i < params.conditional.size; ++i)
      capture_into(params.conditional.phGraph_out[i], {}, [&](cudaStream_t s) {
        if (!loop) return alternatives(s, (int32_t)i);
        body(s);
        decide_in_graph<<<1, 1, 0, s>>>(p, state, handle);
      });
    instantiate(graph);
  }

  // Captures into a graph that exists; returns the nodes on which whatever follows depends.
  template <class Issuer>
  std::vector<cudaGraphNode_t> capture_into(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, Issuer issue) {
    TRY(cudaStreamBeginCaptureToGraph(own, graph, after.data(), nullptr, after.size(), cudaStreamCaptureModeThreadLocal));
    issue(own);
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t* last = nullptr;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    TRY(cudaStreamGetCaptureInfo(own, &status, nullptr, nullptr, &last, nullptr, &count));
#else
    TRY(cudaStreamGetCaptureInfo_v2(own, &status, nullptr, nullptr, &last, &count));
#endif
    std::vector<cudaGraphNode_t> found(last, last + count);
    cudaGraph_t same;
    TRY(cudaStreamEndCapture(own, &same));
    TRY(cudaGetLastError());
    return found;
  }

  void step(cudaStream_t s) {
    TRY(cudaMemsetAsync(state, 0, sizeof(State), s));
    if (p.decision == SPAWN) TRY(cudaMemsetAsync(p.y, 0, p.n * sizeof(float), s));
    if (p.decision == WHILE) loop(s);
    else if (p.issue == DEVICE_GRAPH) TRY(cudaGraphLaunch(execs[0], s));
    else if (p.issue == SCHEDULER) TRY(cudaGraphLaunch(execs[1], s));
    else if (p.queue && p.issue == DYNAMIC) spawn_items<<<1, 1, 0, s>>>(p, state);
    else for (int32_t turn = 0; turn < p.iterations; ++turn) {
      one(s, turn);
      if (p.sync == EACH_CHAIN) TRY(cudaStreamSynchronize(s));
    }
    TRY(cudaGetLastError());
    // Also because a graph that launches itself must have ended before the host may launch it again.
    TRY(cudaStreamSynchronize(s));
  }

  void loop(cudaStream_t s) {
    if (p.issue == CONDITIONAL) return TRY(cudaGraphLaunch(execs[0], s));
    start(s);
    do TRY(cudaGraphLaunch(execs[0], s));
    while (hear(s));
  }

  void one(cudaStream_t s, int32_t turn) {
    if (p.decision == SPAWN) return spawn(s, turn);
    if (p.issue == CONDITIONAL) return TRY(cudaGraphLaunch(execs[0], s));
    if (p.issue == DYNAMIC) return start(s), decide_and_launch<<<1, 1, 0, s>>>(p, state);
    if (p.decision != NO_DECISION) return choose(s);
    if (p.queue) {  // items of a queue that the host keeps
      told[turn] = turn;
      TRY(cudaMemcpyAsync(&state->item, told + turn, sizeof(int32_t), cudaMemcpyHostToDevice, s));
      return TRY(cudaGraphLaunch(execs[0], s));
    }
    if (p.issue == STREAM) return chain(s, p.n, false);
    if (p.issue == TAIL || p.issue == FIRE_AND_FORGET) return TRY(cudaGraphLaunch(execs[1], s));
    refreshed(s, turn);
  }

  void choose(cudaStream_t s) {
    if (p.issue == GRAPH) TRY(cudaGraphLaunch(execs[0], s));
    else first_and_decide(s);
    const int32_t choice = hear(s);
    if (p.decision == IF && !choice) return;
    const int32_t which = p.decision == IF ? 0 : choice;
    if (p.issue == GRAPH) TRY(cudaGraphLaunch(execs[1 + which], s));
    else alternatives(s, which);
  }

  void spawn(cudaStream_t s, int32_t turn) {
    if (p.issue == DYNAMIC) { parent_launches<<<1, 1, 0, s>>>(p, state); return; }
    if (p.issue == INLINE) { parent_inline<<<blocks(p.n), BLOCK, 0, s>>>(p, state, turn); return; }
    decide<<<1, 1, 0, s>>>(p, state);
    tell(s);
    const int64_t length = hear(s);
    for (int32_t c = 0; c < p.children; ++c) {
      const int64_t begin = part(length, c, p.children), end = part(length, c + 1, p.children);
      if (end > begin) child<<<blocks(end - begin), BLOCK, 0, s>>>(p.x, p.y, begin, end);
    }
  }

  // The graph for this turn's size: the only one, one of a pool, made anew, or the old one with new parameters.
  void refreshed(cudaStream_t s, int32_t turn) {
    cudaGraphExec_t exec = execs[p.refresh == GRAPH_PER_SIZE ? turn % p.sizes : 0];
    if (p.refresh != RECAPTURE && p.refresh != EXEC_UPDATE) return TRY(cudaGraphLaunch(exec, s));
    cudaGraph_t graph = captured([&](cudaStream_t c) { chain(c, size_of(turn), false); });
    if (p.refresh == EXEC_UPDATE) {
      cudaGraphExecUpdateResultInfo info;
      TRY(cudaGraphExecUpdate(exec, graph, &info));
    } else {
      TRY(cudaGraphInstantiate(&exec, graph, 0));
    }
    TRY(cudaGraphLaunch(exec, s));
    if (p.refresh == RECAPTURE) TRY(cudaGraphExecDestroy(exec));
    TRY(cudaGraphDestroy(graph));
  }

  void close() {
    for (auto exec : execs) cudaGraphExecDestroy(exec);
    for (auto graph : graphs) cudaGraphDestroy(graph);
    cudaEventDestroy(forked), cudaEventDestroy(joined), cudaStreamDestroy(own), cudaStreamDestroy(side);
    cudaFreeHost(told), cudaFree(state);
  }
};

static thread_local char fault[256];

template <class Action>
static const char* guarded(Action action) {
  try {
    action();
    return nullptr;
  } catch (const Failed& failed) {
    snprintf(fault, sizeof fault, "%s (launches.cu:%d)", cudaGetErrorString(failed.code), failed.line);
    return fault;
  }
}

extern "C" {
const char* launches_open(const Plan* plan, void** runner) {
  *runner = new Runner(*plan);
  return guarded([&] { ((Runner*)*runner)->open(); });
}
const char* launches_step(void* runner, void* stream) {
  return guarded([&] { ((Runner*)runner)->step((cudaStream_t)stream); });
}
int64_t launches_graph_bytes(void* runner) { return ((Runner*)runner)->graph_bytes; }
void launches_close(void* runner) {
  ((Runner*)runner)->close();
  delete (Runner*)runner;
}
}
