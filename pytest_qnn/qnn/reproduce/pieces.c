/* A binary that the backend is given piece by piece, and the client's account of the pieces. */
#define PIECES 64
#define ACCOUNTS 8
#define PIECE_PARAMETER UINT64_C(0x0B1E00000000)
struct piece {
  unsigned char *address, *contents;
  int fd, shown, releases;
  size_t length, size; /* of the memory, and what the client has said of it */
  long changed;
};
struct account {
  const unsigned char* binary;
  size_t size, start;
  int dma, fails, requests, given, wrongly, beyond, empty;
  struct piece pieces[PIECES];
};
static struct account accounts[ACCOUNTS];
static int other_parameter;
struct binary_callback { /* Qnn_ContextBinaryCallback_t, of either type */
  uint32_t type;
  struct {
    uint32_t version;
    struct {
      void *provide, *release, *parameter;
    } v1;
  } functions;
};

static struct account* account_of(void* parameter) {
  uint64_t number = (uint64_t)(uintptr_t)parameter - PIECE_PARAMETER;
  if (number < ACCOUNTS) return &accounts[number];
  ++other_parameter;
  return NULL;
}

static struct piece* provide(struct account* own, Qnn_ContextBinaryDataRequest_t request, uint64_t* error) {
  *error = 5000; /* QNN_CONTEXT_ERROR_INVALID_ARGUMENT */
  if (!own) return NULL;
  ++own->requests;
  own->empty += !request.size;
  int within = request.size && request.size <= own->size && request.offset <= own->size - request.size;
  own->beyond += request.size && !within;
  if (own->requests == own->fails) *error = 1002;
  if (own->requests == own->fails || !within || own->given == PIECES) return NULL;
  struct piece* one = &own->pieces[own->given];
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  one->length = (own->start + request.size + page - 1) / page * page;
  one->address = rpcmem_alloc(25, 1, (int)one->length);
  if (!one->address) stop("rpcmem_alloc gave NULL");
  memset(one->address, 0xA5, one->length);
  memcpy(one->address + own->start, own->binary + request.offset, request.size);
  one->contents = copy_of(one->address, one->length);
  one->fd = rpcmem_to_fd(one->address);
  one->shown = request.isBackendMappingNeeded && own->dma ? one->fd : -1;
  one->size = one->length - own->start;
  ++own->given;
  *error = 0;
  return one;
}

static uint64_t provide_dma(Qnn_ContextBinaryDataRequest_t request, Qnn_ContextBinaryDmaDataResponse_t* response,
                            void* parameter) {
  uint64_t error;
  struct account* own = account_of(parameter);
  struct piece* one = provide(own, request, &error);
  if (!one) return error;
  response->dmaBuffer.fd = one->shown;
  response->dmaBuffer.data = one->address;
  response->dataStartOffset = own->start;
  response->alignedSize = one->size;
  return 0;
}

static uint64_t provide_raw(Qnn_ContextBinaryDataRequest_t request, Qnn_ContextBinaryRawDataResponse_t* response,
                            void* parameter) {
  uint64_t error;
  struct account* own = account_of(parameter);
  struct piece* one = provide(own, request, &error);
  if (!one) return error;
  response->memPtr = one->address;
  response->dataStartOffset = own->start;
  response->alignedSize = one->size;
  return 0;
}

static uint64_t release_piece(void* parameter, void* address, int fd, size_t size) {
  struct account* own = account_of(parameter);
  for (int i = 0; own && i < own->given; ++i) {
    struct piece* one = &own->pieces[i];
    if (one->address != address) continue;
    own->wrongly += fd != one->shown || (size != one->size && size != one->length);
    if (++one->releases == 1) {
      one->changed = (long)differing(one->address, one->contents, one->length);
      mprotect(one->address, one->length, PROT_NONE);
    }
    return 0;
  }
  if (own) ++own->wrongly;
  return 5000;
}

static uint64_t release_dma(Qnn_ContextBinaryDmaDataMem_t memory, void* parameter) {
  return release_piece(parameter, memory.dmaBuffer.data, memory.dmaBuffer.fd, memory.memSize);
}

static uint64_t release_raw(Qnn_ContextBinaryRawDataMem_t memory, void* parameter) {
  return release_piece(parameter, memory.memPtr, -1, memory.memSize);
}

HELPER struct binary_callback* in_pieces(int number, const void* binary, size_t size, int dma, size_t start, int fails) {
  struct binary_callback* made = calloc(1, sizeof *made);
  if (!made) stop("there is no memory");
  memset(&accounts[number], 0, sizeof accounts[number]);
  accounts[number].binary = binary;
  accounts[number].size = size;
  accounts[number].dma = dma;
  accounts[number].start = start;
  accounts[number].fails = fails;
  made->type = dma ? 2 : 1;
  made->functions.version = 1;
  made->functions.v1.provide = dma ? (void*)provide_dma : (void*)provide_raw;
  made->functions.v1.release = dma ? (void*)release_dma : (void*)release_raw;
  made->functions.v1.parameter = (void*)(uintptr_t)(PIECE_PARAMETER + (uint64_t)number);
  return made;
}

/* Of one account: pieces given back, those again, bytes of pieces that changed, mappings of what was given back. */
HELPER long pieces_of(int number, const char* what) {
  long released = 0, again = 0, changed = 0, mapped = 0;
  for (int i = 0; i < accounts[number].given; ++i) {
    struct piece* one = &accounts[number].pieces[i];
    released += one->releases > 0;
    again += one->releases > 1 ? one->releases - 1 : 0;
    changed += one->releases ? one->changed : (long)differing(one->address, one->contents, one->length);
    if (one->releases) mapped += mappings(one->fd) - 1;
  }
  if (!strcmp(what, "released")) return released;
  if (!strcmp(what, "again")) return again;
  return strcmp(what, "changed") ? mapped : changed;
}
