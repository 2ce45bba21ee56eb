"""The example backend with one mistake of threading each: alone, every thread is answered as it should be.

They were written from the sentence of QTHR-06, as mistakes in C: a lock that is taken too late, given up too
early or not the right one, a variable that all threads share, a count that is not atomic. No delay makes them
easier to find. `CONFORMING` are libraries that use what that rule leaves to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.faults import faults
from tests.faults.faults import Fault

_OWNER: Final = "QTHR-06"
_Pieces = tuple[tuple[str, str], ...]

_TAKE: Final = "  pthread_mutex_lock(&mutex);\n"
_GIVE: Final = "  pthread_mutex_unlock(&mutex);\n"
_LOCKED: Final = "  ONE_AT_A_TIME;\n"
_MUTEX: Final = "static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;\n"
_UNLOCKING: Final = f"  (void)held;\n{_GIVE}"
_LOCKING: Final = "  pthread_mutex_lock(&mutex)\n"
_DEFINED: Final = f"""\
#define ONE_AT_A_TIME                               \\
  int held __attribute__((cleanup(unlock))) = 0;    \\
  (void)held;                                       \\
{_LOCKING}"""
_STATE: Final = "static uint32_t last_tensor;\n"
_NUMBER: Final = "  made->handle = ((uintptr_t)kind << 56) | ++last_handle;\n"
_END: Final = "/* Ends an object, and first all that it owns. */\n"
_UNLINKED: Final = "  *place = ended->next;\n"
_CLEARED: Final = "  if (ended->kind == kGraph) clear((Graph*)ended);\n"
_UNMAPPED: Final = "  if (ended->kind == kMemory) munmap(((Memory*)ended)->data, ((Memory*)ended)->length);\n"

_BACKEND_CREATE: Final = (
    "static Error backend_create(uintptr_t log, const ContextConfig** config, uintptr_t* out) {\n"
)
_BACKEND_FREE: Final = "static Error backend_free(uintptr_t backend) {\n"
_DEVICE_CREATE: Final = (
    "static Error device_create(uintptr_t log, const ContextConfig** config, uintptr_t* out) {\n"
)
_CONTEXT_CREATE: Final = (
    "static Error context_create(uintptr_t backend, uintptr_t device, const ContextConfig** config, "
    "uintptr_t* out) {\n"
)
_USED: Final = "  made->device = used;\n"
_FREED: Final = "  if (profile) return 5000;\n  end(found);\n"
_CREATE_TENSOR: Final = f"""\
static Error create_tensor(uintptr_t graph, Tensor* given) {{
{_LOCKED}  Graph* owner = find(kGraph, graph);
  if (!owner) return 7001;
  Entry made;
"""
_TENSOR_READ: Final = "  if (!read_tensor(given, &made)) return 7004;\n"

_CHECKED: Final = """\
  for (uint32_t i = 0; i < owner->tensors_size; ++i) {
    if (owner->tensors[i].type == kAppRead && !is_produced(owner, &owner->tensors[i])) return 6020;
  }
  owner->finalised = 1;
"""
_EXECUTE: Final = (
    "static Error graph_execute(uintptr_t graph, const Tensor* in, uint32_t in_size, "
    "const Tensor* out, uint32_t out_size,\n"
    "                           uintptr_t profile, uintptr_t signal) {\n"
)
_FOUND: Final = "  Graph* owner = find(kGraph, graph);\n"
_PLACES: Final = """\
  void** data = calloc(owner->tensors_size, sizeof(void*));
  if (!data) return no_memory;
"""
_COMPUTED: Final = "  if (!code) compute(owner, data);\n"
_OUTSIDE: Final = _GIVE + _COMPUTED + _TAKE
_PLACES_FREED: Final = "  free(data);\n  return code;\n"

_REGISTER: Final = (
    "static Error mem_register(uintptr_t context, const MemDescriptor* given, uint32_t size, "
    "uintptr_t* out) {\n"
)
_REGISTER_ALL: Final = _REGISTER.replace("mem_register", "register_all")
_DEREGISTER: Final = "static Error mem_deregister(const uintptr_t* handles, uint32_t size) {\n"
_ENDED: Final = f"""\
{_DEREGISTER}{_LOCKED}  if (!handles || !size) return 8000;
  Error code = 0;
  for (uint32_t i = 0; i < size; ++i) {{
    Object* found = find(kMemory, handles[i]);
    if (!found) code = 8001;
    if (found) end(found);
  }}
"""
_EXAMINED: Final = """\
  struct stat file;
  if (given->fd < 0 || fstat(given->fd, &file) || !S_ISREG(file.st_mode)) return 8003;
"""
_DELIVERED: Final = "      out[i] = made->base.handle;\n"
_MAPPED: Final = """\
  void* data = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, given->fd, 0);
  if (data == MAP_FAILED) return 8003;
"""
_MADE: Final = """\
  if (!*made) {
    munmap(data, (size_t)file.st_size);
    return no_memory;
  }
"""
_FILLED: Final = """\
  (*made)->length = (size_t)file.st_size;
  (*made)->data = data;
"""
_MEMORY: Final = "typedef struct {\n  Object base;\n  dev_t device;\n  ino_t file;\n"


def _race(what: str, piece: str, by: str, *also: tuple[str, str]) -> Fault:
    return Fault("memory", what, _OWNER, piece, by, also=also)


def _variant(what: str, piece: str, by: str, *also: tuple[str, str]) -> Fault:
    return Fault("memory", f"No fault: {what}", "", piece, by, also=also)


def _locks(name: str) -> str:
    """A few locks, and how one of them is given back at the end of a block."""
    return (
        f"static pthread_mutex_t {name}[8] = {{[0 ... 7] = PTHREAD_MUTEX_INITIALIZER}};\n"
        "static void give_back(pthread_mutex_t** held) { pthread_mutex_unlock(*held); }\n"
        "#define WITH_LOCK(lock)                                              \\\n"
        "  pthread_mutex_t* held __attribute__((cleanup(give_back))) = (lock); \\\n"
        "  pthread_mutex_lock(held)\n"
    )


_MAPPING: Final = f"""\
typedef struct Mapping {{
  struct Mapping* next;
  dev_t device;
  ino_t file;
  size_t length;
  void* data;
  int users; /* registrations, in any context */
}} Mapping;

{_MEMORY}  Mapping* mapping;
"""
_LOOKED_UP: Final = """\
static Mapping* mappings;
static Mapping* mapping_of(dev_t device, ino_t file, size_t length) {
  for (Mapping* each = mappings; each; each = each->next) {
    if (each->device == device && each->file == file && each->length == length) return each;
  }
  return NULL;
}
static Mapping* keep(void* data, const struct stat* file) {
  Mapping* made = calloc(1, sizeof(Mapping));
  if (!made) {
    munmap(data, (size_t)file->st_size);
    return NULL;
  }
  *made = (Mapping){mappings, file->st_dev, file->st_ino, (size_t)file->st_size, data, 0};
  mappings = made;
  return made;
}
static void forget(Mapping* left) {
  Mapping** place = &mappings;
  while (*place != left) place = &(*place)->next;
  *place = left->next;
  munmap(left->data, left->length);
  free(left);
}
"""
_MMAP: Final = """\
  void* data = mmap(NULL, (size_t)file->st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
"""
_SHARE: Final = f"""\
/* The mapping of a file, which the first of its registrations makes; NULL: there is none. */
static Mapping* share(int fd, const struct stat* file) {{
  Mapping* found = mapping_of(file->st_dev, file->st_ino, (size_t)file->st_size);
  if (!found) {{
  {_MMAP}    if (data == MAP_FAILED || !(found = keep(data, file))) return NULL;
  }}
  ++found->users;
  return found;
}}
"""
_DROP: Final = """\
/* The mapping goes with the last registration. */
static void drop(Mapping* left) {
  if (left && --left->users == 0) forget(left);
}
"""
_SHARED: Final[_Pieces] = (
    (_MAPPED, "  Mapping* mapping = share(given->fd, &file);\n  if (!mapping) return 8003;\n"),
    (_MADE, "  if (!*made) {\n    drop(mapping);\n    return no_memory;\n  }\n"),
    (
        _FILLED,
        """\
  (*made)->length = mapping->length;
  (*made)->data = mapping->data;
  (*made)->mapping = mapping;
""",
    ),
    (_UNMAPPED, "  if (ended->kind == kMemory) drop(((Memory*)ended)->mapping);\n"),
)
"""Registrations of one file share a mapping, in whatever contexts they are."""


def _sharing(share: str = _SHARE, drop: str = _DROP) -> tuple[tuple[str, str], ...]:
    return (_MEMORY, _MAPPING), (_END, _LOOKED_UP + share + drop + _END), *_SHARED


_LEFT_BEHIND: Final = f"""\
{_DEREGISTER}  if (!handles || !size) return 8000;
  Error code = 0;
  for (uint32_t i = 0; i < size; ++i) {{
    Mapping* left = NULL;
  {_TAKE}    Memory* found = find(kMemory, handles[i]);
    if (!found) code = 8001;
    if (found) {{
      left = found->mapping;
      found->mapping = NULL;
      end(&found->base);
    }}
  {_GIVE}    drop(left); /* the system takes its time to unmap */
  }}
"""

_NUMBERS: Final = """\
static uintptr_t free_numbers[256];
static size_t numbers_size;
static const uintptr_t number_mask = ((uintptr_t)1 << 56) - 1;
static void free_number(uintptr_t handle) {
  if (numbers_size == sizeof free_numbers / sizeof *free_numbers) return;
  free_numbers[numbers_size++] = handle & number_mask;
}
static uintptr_t next_number(Kind kind) {
  return kind == kMemory && numbers_size ? free_numbers[--numbers_size] : ++last_handle;
}
"""
_REUSED: Final[_Pieces] = (
    (_STATE, _STATE + _NUMBERS),
    (_NUMBER, "  made->handle = ((uintptr_t)kind << 56) | next_number(kind);\n"),
)
"""Numbers of handles of memory are used again, the last one first."""

_READ_WRITE: Final[_Pieces] = (
    (_UNLOCKING, "  (void)held;\n  pthread_rwlock_unlock(&lock);\n"),
    (
        _DEFINED,
        """\
#define WITH(taken)                              \\
  int held __attribute__((cleanup(unlock))) = 0; \\
  (void)held;                                    \\
  taken(&lock)
#define ONE_AT_A_TIME WITH(pthread_rwlock_wrlock)
#define BESIDE_OTHERS WITH(pthread_rwlock_rdlock)
""",
    ),
    (f"{_EXECUTE}{_LOCKED}", f"{_EXECUTE}  BESIDE_OTHERS;\n"),
)
"""A lock for reading and writing; executes read."""
_READ_WRITE_LOCK: Final = "static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;\n"
_TABLES: Final = """\
/* The 256 values of a quantisation, computed once. */
typedef struct Table {
  struct Table* next;
  float scale;
  int32_t offset;
  double values[256];
} Table;
static const double* table_of(const Entry* tensor) {
  static Table* tables;
  for (Table* each = tables; each; each = each->next) {
    if (each->scale == tensor->scale && each->offset == tensor->offset) return each->values;
  }
  Table* made = calloc(1, sizeof(Table));
  if (!made) return NULL;
  made->scale = tensor->scale;
  made->offset = tensor->offset;
  made->next = tables;
  tables = made;
  for (int i = 0; i < 256; ++i) made->values[i] = ((double)i + tensor->offset) * tensor->scale;
  return made->values;
}
"""
_LOAD: Final = "static double load(const Entry* from, const void* data, size_t place) {\n"
_LOADED: Final = "  return ((double)((const uint8_t*)data)[place] + from->offset) * from->scale;\n"

RACES: Final[dict[str, Fault]] = {
    "numbers-before-lock": _race(
        "QnnMem_register takes the numbers of its handles from their counter before it takes the lock.",
        f"{_REGISTER}{_LOCKED}",
        f"""\
static uintptr_t last_memory;
{_REGISTER}  const uintptr_t first = last_memory;
  last_memory = first + size;
{_LOCKED}""",
        (_DELIVERED, "      out[i] = made->base.handle = ((uintptr_t)kMemory << 56) | (first + i + 1);\n"),
    ),
    "register-locks-its-context": _race(
        "QnnMem_register takes the lock of its context only, and enters what it makes into the list of all.",
        f"{_REGISTER}{_LOCKED}",
        f"{_locks('of_contexts')}{_REGISTER}  WITH_LOCK(&of_contexts[context % 8]);\n",
    ),
    "memory-locks-its-own": _race(
        "QnnMem has a lock of its own, and its registrations stand in one list with contexts and graphs.",
        f"{_REGISTER}{_LOCKED}",
        f"{_locks('of_memory')}{_REGISTER}  WITH_LOCK(&of_memory[0]);\n",
        (f"{_DEREGISTER}{_LOCKED}", f"{_DEREGISTER}  WITH_LOCK(&of_memory[0]);\n"),
    ),
    "binds-without-lock": _race(
        "QnnGraph_execute gives the lock up once it has its graph, and looks memory handles up without it.",
        f"{_EXECUTE}{_LOCKED}{_FOUND}",
        f"""\
{_EXECUTE}  Graph* owner;
  {{
  {_LOCKED}    owner = find(kGraph, graph);
  }}
""",
    ),
    "places-are-static": _race(
        "QnnGraph_execute keeps where its tensors are in one table for all, and computes without the lock.",
        _PLACES,
        """\
  static void** data;
  static uint32_t places;
  if (places < owner->tensors_size) {
    void** more = realloc(data, owner->tensors_size * sizeof(void*));
    if (!more) return no_memory;
    data = more;
    places = owner->tensors_size;
  }
  memset(data, 0, owner->tensors_size * sizeof(void*));
""",
        (_COMPUTED, _OUTSIDE),
        (_PLACES_FREED, "  return code;\n"),
    ),
    "inputs-are-staged": _race(
        "QnnGraph_execute copies raw inputs to one buffer for all, and computes from there without the lock.",
        _COMPUTED,
        f"""\
  static uint64_t staged[1 << 13];
  size_t used = 0;
  for (uint32_t i = 0; !code && i < in_size; ++i) {{
    const Entry* tensor = of_id(owner, in[i].id);
    if (in[i].memory_type != kRaw || used + tensor->size > sizeof staged) continue;
    data[tensor - owner->tensors] = memcpy((char*)staged + used, in[i].pointer, tensor->size);
    used += (tensor->size + 7) & ~(size_t)7;
  }}
{_OUTSIDE}""",
    ),
    "answer-is-static": _race(
        "QnnMem_register keeps its answer in a variable of all threads until it has given the lock back.",
        f"{_REGISTER}{_LOCKED}",
        _REGISTER_ALL,
        (
            f"{_DEREGISTER}{_LOCKED}",
            f"""\
{_REGISTER}  static Error answer;
{_TAKE}  answer = register_all(context, given, size, out);
{_GIVE}  return answer;
}}
{_DEREGISTER}{_LOCKED}""",
        ),
    ),
    "batch-is-static": _race(
        "QnnMem_register gathers handles in one array for all, which it copies out after it has unlocked.",
        f"{_REGISTER}{_LOCKED}",
        _REGISTER_ALL,
        (
            f"{_DEREGISTER}{_LOCKED}",
            f"""\
{_REGISTER}  static uintptr_t batch[64];
  const int fits = out && size <= 64;
{_TAKE}  const Error code = register_all(context, given, size, fits ? batch : out);
{_GIVE}  if (fits) memcpy(out, batch, size * sizeof *batch);
  return code;
}}
{_DEREGISTER}{_LOCKED}""",
        ),
    ),
    "file-is-static": _race(
        "QnnMem_register unlocks to look at a descriptor, and has what it sees in one variable for all.",
        _EXAMINED,
        f"""\
  static struct stat file;
{_GIVE}  const int is_file = given->fd >= 0 && !fstat(given->fd, &file) && S_ISREG(file.st_mode);
{_TAKE}  if (!is_file) return 8003;
""",
    ),
    "tensor-is-static": _race(
        "QnnTensor_createGraphTensor reads what it is given into one variable for all, before it locks.",
        _CREATE_TENSOR,
        f"""\
static Error create_tensor(uintptr_t graph, Tensor* given) {{
  static Entry made;
  const int is_read = given && read_tensor(given, &made);
{_LOCKED}  Graph* owner = find(kGraph, graph);
  if (!owner) return 7001;
""",
        (_TENSOR_READ, "  if (!is_read) return 7004;\n"),
    ),
    "users-counted-after-lock": _race(
        "QnnMem_deRegister counts down the users of a mapping that contexts share after it has unlocked.",
        _ENDED,
        _LEFT_BEHIND,
        *_sharing(),
    ),
    "mapping-found-again": _race(
        "The last user of a mapping that contexts share locks to unmap it, and counts its users no more.",
        _ENDED,
        _LEFT_BEHIND.replace(
            "    drop(left); /* the system takes its time to unmap */\n",
            f"""\
    if (!left || __atomic_sub_fetch(&left->users, 1, __ATOMIC_ACQ_REL)) continue;
  {_TAKE}    forget(left);
  {_GIVE}""",
        ),
        *_sharing(
            _SHARE.replace("++found->users;", "__atomic_add_fetch(&found->users, 1, __ATOMIC_ACQ_REL);")
        ),
    ),
    "mapped-twice": _race(
        "QnnMem_register unlocks to map memory that contexts share, and does not look again who mapped it.",
        _MEMORY,
        _MAPPING,
        (
            _END,
            _LOOKED_UP
            + _SHARE.replace(f"  {_MMAP}", f"  {_GIVE}  {_MMAP}  {_TAKE}")
            + """\
static void drop(const Memory* left) {
  Mapping* found = mapping_of(left->device, left->file, left->length);
  if (found && --found->users == 0) forget(found);
}
"""
            + _END,
        ),
        *_SHARED[:1],
        (_MADE, _SHARED[1][1].replace("drop(mapping)", "if (--mapping->users == 0) forget(mapping)")),
        _SHARED[2],
        (_UNMAPPED, "  if (ended->kind == kMemory) drop((const Memory*)ended);\n"),
    ),
    "locks-in-two-orders": _race(
        "QnnMem_deRegister takes the lock of the mappings before that of the objects, all others after it.",
        _ENDED,
        f"""\
{_DEREGISTER}  WITH_LOCK(&of_mappings[0]);
  pthread_mutex_lock(&mutex);
  Error code = handles && size ? 0 : 8000;
  for (uint32_t i = 0; handles && i < size; ++i) {{
    Memory* found = find(kMemory, handles[i]);
    if (!found) code = 8001;
    if (!found) continue;
    if (--found->mapping->users == 0) forget(found->mapping);
    found->mapping = NULL;
    end(&found->base);
  }}
{_GIVE}""",
        *_sharing(
            _SHARE.replace("{\n  Mapping* found", "{\n  WITH_LOCK(&of_mappings[0]);\n  Mapping* found"),
            _DROP.replace("  if (left", "  if (!left) return;\n  WITH_LOCK(&of_mappings[0]);\n  if (left"),
        ),
        (_STATE, _STATE + _locks("of_mappings")),
    ),
    "number-is-free-too-early": _race(
        "QnnMem_deRegister frees the number of a handle, and locks again to end the registration of it.",
        _ENDED,
        f"""\
{_DEREGISTER}  if (!handles || !size) return 8000;
  Error code = 0;
  for (uint32_t i = 0; i < size; ++i) {{
  {_TAKE}    const int is_there = find(kMemory, handles[i]) != NULL;
    if (is_there) free_number(handles[i]);
  {_GIVE}    if (!is_there) {{
      code = 8001;
      continue;
    }}
  {_TAKE}    Object* found = find(kMemory, handles[i]);
    if (found) end(found);
  {_GIVE}  }}
""",
        *_REUSED,
    ),
    "graph-is-cached": _race(
        "QnnGraph_execute looks at handle and graph of the last one, of any thread, without the lock.",
        f"{_EXECUTE}{_LOCKED}{_FOUND}",
        f"""\
{_EXECUTE}  Graph* owner = last_executed == graph ? last_graph : NULL;
{_LOCKED}  if (!owner) {{
    owner = find(kGraph, graph);
    last_graph = owner;
    last_executed = graph;
  }}
""",
        (_STATE, f"{_STATE}static uintptr_t last_executed;\nstatic Graph* last_graph;\n"),
        (
            _CLEARED,
            f"""\
  if (ended == (Object*)last_graph) {{
    last_executed = 0;
    last_graph = NULL;
  }}
{_CLEARED}""",
        ),
    ),
    "slot-is-taken-twice": _race(
        "QnnContext_create looks for a free slot, whose number is its handle's, before it takes the lock.",
        f"{_CONTEXT_CREATE}{_LOCKED}",
        f"""\
{_CONTEXT_CREATE}  uintptr_t slot = 0;
  while (slot < slots_size && slots[slot]) ++slot;
{_LOCKED}""",
        (
            _USED,
            f"""\
{_USED}  made->handle = ((uintptr_t)kContext << 56) | (slot < slots_size ? slot : slots_size + last_handle);
  if (slot < slots_size) slots[slot] = made;
""",
        ),
        (
            _UNLINKED,
            f"""\
{_UNLINKED}  for (size_t i = 0; i < slots_size; ++i) {{
    if (slots[i] == ended) slots[i] = NULL;
  }}
""",
        ),
        (_STATE, f"{_STATE}enum {{ slots_size = 64 }};\nstatic Object* slots[slots_size]; /* contexts */\n"),
    ),
    "finalises-the-other": _race(
        "QnnGraph_finalize keeps its graph in a variable of all threads while it prepares it unlocked.",
        _CHECKED,
        f"""\
  static Graph* preparing;
  preparing = owner;
{_GIVE}  int is_complete = 1;
  for (uint32_t i = 0; i < owner->tensors_size; ++i) {{
    is_complete &= owner->tensors[i].type != kAppRead || is_produced(owner, &owner->tensors[i]);
  }}
{_TAKE}  if (!is_complete) return 6020;
  preparing->finalised = 1;
""",
    ),
    "backends-miscounted": _race(
        "Backends are counted without the lock, and what the last one frees is used by all.",
        f"{_BACKEND_CREATE}{_LOCKED}",
        f"{_BACKEND_CREATE.replace('backend_create', 'make_backend')}{_LOCKED}",
        (
            f"{_BACKEND_FREE}{_LOCKED}",
            f"{_BACKEND_FREE.replace('backend_free', 'end_backend')}{_LOCKED}",
        ),
        (
            _DEVICE_CREATE,
            f"""\
{_BACKEND_CREATE}  const Error code = make_backend(log, config, out);
  if (!code && ++users == 1) kernels = memcpy(malloc(sizeof operators), operators, sizeof operators);
  return code;
}}
{_BACKEND_FREE}  const Error code = end_backend(backend);
  if (code || --users) return code;
  free(kernels);
  kernels = NULL;
  return 0;
}}
{_DEVICE_CREATE}""",
        ),
        (
            _STATE,
            f"{_STATE}static int users;\nstatic Operator* kernels; /* as long as there is a backend */\n",
        ),
        (
            "    if (!strcmp(operators[i].name, config->type)) found = &operators[i];\n",
            "    if (!strcmp(kernels[i].name, config->type)) found = &kernels[i];\n",
        ),
    ),
    "table-is-found-unfilled": _race(
        "The values of a quantisation are found by other threads before they are computed.",
        _LOAD,
        _TABLES + _LOAD,
        (
            _LOADED,
            f"""\
  const double* values = table_of(from);
  if (values) return values[((const uint8_t*)data)[place]];
{_LOADED}""",
        ),
        (_COMPUTED, _OUTSIDE),
    ),
    "deregister-locks-to-read": _race(
        "QnnMem_deRegister takes the lock for reading only, as executes do.",
        _MUTEX,
        _READ_WRITE_LOCK,
        *_READ_WRITE,
        (f"{_DEREGISTER}{_LOCKED}", f"{_DEREGISTER}  BESIDE_OTHERS;\n"),
    ),
    "context-ends-without-lock": _race(
        "QnnContext_free gives the lock up before it ends what the context has.",
        _FREED,
        f"  if (profile) return 5000;\n{_GIVE}  end(found);\n{_TAKE}",
    ),
    "neighbour-is-gone": _race(
        "QnnContext_free unlocks to unmap each memory of the context, and goes on with the object behind it.",
        _FREED,
        f"""\
  if (profile) return 5000;
  for (Object *each = objects, *next; each; each = next) {{
    Memory* memory = (Memory*)each;
    next = each->next;
    if (each->kind != kMemory || each->owner != found) continue;
  {_GIVE}    munmap(memory->data, memory->length);
  {_TAKE}    memory->data = NULL;
    memory->length = 0;
    end(each);
  }}
  end(found);
""",
    ),
    "spins-in-two-steps": _race(
        "The lock is a flag that is looked at in one step and set in the next.",
        _MUTEX,
        "static volatile int is_locked;\n",
        (_UNLOCKING, "  (void)held;\n  is_locked = 0;\n"),
        (_LOCKING, "  while (is_locked) {} is_locked = 1\n"),
    ),
    "device-is-busy": _race(
        "QnnGraph_execute answers 1010 while the device computes for another thread.",
        _COMPUTED,
        f"""\
  static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER;
{_GIVE}  if (!code) code = pthread_mutex_trylock(&device) ? 1010 : 0;
  if (!code) {{
    compute(owner, data);
    pthread_mutex_unlock(&device);
  }}
{_TAKE}""",
    ),
    "unlocks-twice": _race(
        "QnnMem_register that refuses a descriptor unlocks itself, and a second time as it returns.",
        _EXAMINED,
        f"""\
  struct stat file;
  if (given->fd < 0 || fstat(given->fd, &file) || !S_ISREG(file.st_mode)) {{
  {_GIVE}    return 8003;
  }}
""",
    ),
    "wakes-too-early": _race(
        "QnnGraph_execute frees the device without the lock, and wakes nobody who is only about to wait.",
        _COMPUTED,
        f"""\
  static pthread_cond_t device = PTHREAD_COND_INITIALIZER;
  static volatile int is_busy;
  while (is_busy) pthread_cond_wait(&device, &mutex);
  is_busy = 1;
{_GIVE}{_COMPUTED}  is_busy = 0;
  pthread_cond_signal(&device);
{_TAKE}""",
    ),
}
"""By name."""

CONFORMING: Final[dict[str, Fault]] = {
    "computes-beside-others": _variant(
        "QnnGraph_execute gives the lock up while it computes.", _COMPUTED, _OUTSIDE
    ),
    "locks-of-contexts": _variant(
        "graphs are computed with a lock for each context; that of the objects is given up meanwhile.",
        _COMPUTED,
        f"""\
  pthread_mutex_t* own = &of_contexts[owner->base.owner->handle % 8];
{_GIVE}  pthread_mutex_lock(own);
{_COMPUTED}  pthread_mutex_unlock(own);
{_TAKE}""",
        (
            _STATE,
            f"{_STATE}static pthread_mutex_t of_contexts[8] = {{[0 ... 7] = PTHREAD_MUTEX_INITIALIZER}};\n",
        ),
    ),
    "numbers-are-atomic": _variant(
        "QnnMem_register takes the numbers of its handles from an atomic counter, before it takes the lock.",
        f"{_REGISTER}{_LOCKED}",
        f"""\
static uintptr_t last_memory;
{_REGISTER}  const uintptr_t first = __atomic_fetch_add(&last_memory, size, __ATOMIC_RELAXED);
{_LOCKED}""",
        (_DELIVERED, "      out[i] = made->base.handle = ((uintptr_t)kMemory << 56) | (first + i + 1);\n"),
    ),
    "executes-read": _variant(
        "the lock is one for reading and writing, and executes read.",
        _MUTEX,
        _READ_WRITE_LOCK,
        *_READ_WRITE,
    ),
    "numbers-are-reused": _variant(
        "the number of a handle that is freed last is given out first.",
        _UNLINKED,
        f"{_UNLINKED}  if (ended->kind == kMemory) free_number(ended->handle);\n",
        *_REUSED,
    ),
    "spins": _variant(
        "the lock is a flag that is looked at and set in one step.",
        _MUTEX,
        "static int is_locked;\n",
        (_UNLOCKING, "  (void)held;\n  __atomic_store_n(&is_locked, 0, __ATOMIC_RELEASE);\n"),
        (_LOCKING, "  while (__atomic_exchange_n(&is_locked, 1, __ATOMIC_ACQUIRE)) {}\n"),
    ),
    "contexts-share-mappings": _variant(
        "registrations of one file share a mapping, in whatever contexts they are.",
        *_sharing()[0],
        *_sharing()[1:],
    ),
}
"""By name: libraries that QTHR-06 has nothing to say against."""


def source(name: str) -> str:
    """The source of a library with a race, or of one that conforms.

    Raises:
        ValueError: what it replaces does not stand in the source once.
    """
    return faults.replaced(name, RACES[name] if name in RACES else CONFORMING[name])


def built(name: str, folder: Path) -> Path:
    """Build the library with a race, or one that conforms, into the folder."""
    return faults.build(folder, "memory", name, source(name))
