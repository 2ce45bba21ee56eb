/* What the System interface beside the backend says of a binary. */
#define TENSORS 256
struct inspected {
  long version, graphs, inputs, outputs, data;
  int tensors;
  uint32_t kinds[TENSORS]; /* memType of each IO tensor: inputs of all graphs first, these in the order of their names */
};

static void note_tensors(struct inspected* out, const Qnn_Tensor_t* tensors, uint32_t count, long* number) {
  *number += count;
  for (uint32_t i = 0; i < count; ++i) {
    out->data += tensors[i].v1.clientBuf.data != NULL;
    if (out->tensors < TENSORS) out->kinds[out->tensors++] = tensors[i].v1.memType;
  }
}

static int by_name(const void* one, const void* other) {
  const char* first = ((const QnnSystemContext_GraphInfo_t*)one)->graphInfoV3.graphName;
  const char* second = ((const QnnSystemContext_GraphInfo_t*)other)->graphInfoV3.graphName;
  return strcmp(first ? first : "", second ? second : "");
}

static uint64_t inspect(const void* binary, uint64_t size, struct inspected* out) {
  char path[4096];
  const char* slash = strrchr(backend_path, '/');
  snprintf(path, sizeof path, "%.*slibQnnSystem.so", slash ? (int)(slash - backend_path + 1) : 0, backend_path);
  memset(out, 0, sizeof *out);
  void* library = dlopen(path, RTLD_NOW);
  if (!library) stop("there is no libQnnSystem.so beside the backend");
  uint64_t (*get_system)(const QnnSystemInterface_t***, uint32_t*);
  *(void**)&get_system = symbol(library, "QnnSystemInterface_getProviders", 1);
  const QnnSystemInterface_t** list = NULL;
  uint32_t count = 0;
  if (get_system(&list, &count) || !count || !list || !list[0]) stop("there is no System interface");
  const QnnSystemInterface_ImplementationV1_t* calls = &list[0]->implementation;
  void* context = NULL;
  QnnSystemContext_BinaryInfo_t* info = NULL;
  uint64_t said = 0, result = calls->systemContextCreate(&context);
  if (result) return result;
  result = calls->systemContextGetBinaryInfo(context, (void*)binary, size, &info, &said);
  if (!result && info) {
    const QnnSystemContext_BinaryInfoV3_t* content = &info->contextBinaryInfoV3;
    QnnSystemContext_GraphInfo_t* graphs = copy_of(content->graphs, content->numGraphs * sizeof *graphs);
    qsort(graphs, content->numGraphs, sizeof *graphs, by_name);
    out->version = info->version;
    out->graphs = content->numGraphs;
    for (uint32_t i = 0; i < content->numGraphs; ++i)
      note_tensors(out, graphs[i].graphInfoV3.graphInputs, graphs[i].graphInfoV3.numGraphInputs, &out->inputs);
    for (uint32_t i = 0; i < content->numGraphs; ++i)
      note_tensors(out, graphs[i].graphInfoV3.graphOutputs, graphs[i].graphInfoV3.numGraphOutputs, &out->outputs);
    free(graphs);
  }
  calls->systemContextFree(context);
  return result;
}
