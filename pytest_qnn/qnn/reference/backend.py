"""The reference QNN backend: a real interface table made of Python callbacks, driven like a library.

    backend = ReferenceBackend()                  # or ReferenceBackend(PERSONALITIES["no-ion"])
    backend.get_providers(list_out, count_out)    # the exported QnnInterface_getProviders
    ...
    backend.escaped                               # [(entry, exception)] of faults of its own: empty
    backend.close()                               # releases every mapping, as a process's end would

Keep the object alive for as long as any pointer of its table may be called.

Structure: one class per subject, each on top of the one before; every API function is one method, and
every decision in it is one more method, marked ``Hook``. A faulty backend (a mutant) is a subclass that
overrides exactly one hook. API methods return for success and raise ``QnnError(code)``.

State that hooks read: ``personality``; the live objects by handle value in ``backends``, ``logs``,
``devices``, ``contexts``, ``graphs`` and ``registrations``; ``mappings``, every mapping not yet released
(``close`` releases what a fault leaks). Using memory that a fault unmapped raises `ReleasedError` (the call
answers 1100, and ``escaped`` shows it) where C would crash: no mutant needs a child process.

=================== ========================================================================================
class, module        hooks
=================== ========================================================================================
InterfaceTable       entries, null_entries, backend_id, provider_name, core_version, backend_version (class
(backend_table)      attributes); answer, interface_get_providers, check_provider_arguments, provider_list,
                     provider_count
Logs                 tell, speak
(backend_logs)
Core                 mint, require, capability, check_context_config, takes_option, check_custom_config,
(backend_core)       free_context, release_registrations, release_graphs
Graphs               check_preset, hint, operator_accepts, prepare_buffers, wants_buffer, allocate_buffer,
(backend_graph)      release_buffers
Execution            bind_all, bind, find_registration, check_registration, check_client_buffer,
(backend_execute)    begin_execute, buffer_of, locate, registered, read_input, write_output, compute,
                     compute_node, constant, keep, store
Asynchronous         require_asynchronous, enqueue, run_job, status_of, check_alive, notify
(backend_async)
Binaries             require_binaries, serialise, stored_tensor, check_binary_config, load, read_binary,
(backend_binary)     initialise, loaded_tensor
Environments         check_environment, populate
(backend_environment)
InOnePiece           allocate_piece
(backend_one_piece)
Retrieval            fetch
(backend_retrieve)
Sections             require_sections, update, section, section_memory, section_registration, check_room
(backend_sections)
Memory               require_memory_api, clear_handles, check_register_arguments, registration_context,
(backend_mem)        register_one, roll_back, deliver_handles, read_descriptor, require_mem_type,
                     needed_bytes, read_shared_buffer, examine_fd, effective_offset, range_end, check_fits,
                     find_duplicate, same_memory, resolve_duplicate, shared_for, check_declared, map_memory,
                     adopt, check_deregister_arguments, deregister_all, deregister_one, forget, drop_user,
                     unmap
ExternalBuffers      check_beside_deferred, needed_weights, needed_spill, context_property, open_external,
(backend_external)   check_alignment, excludes, is_fixed, external_memory, undo_finalize, place, held
Restarts             restart, deregister_one
(backend_restart)
ProvidedPieces       ranges, fetch_piece, keep_pieces, let_go, unmap_piece
(backend_pieces)
Profiles             clear_profile
(backend_profile)
=================== ========================================================================================
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from pytest_qnn.qnn.reference.asynchronous import Asynchronous
from pytest_qnn.qnn.reference.core import Devices
from pytest_qnn.qnn.reference.execute import InOnePiece
from pytest_qnn.qnn.reference.external import Restarts
from pytest_qnn.qnn.reference.graphs import Retrieval
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.reference.pieces import ProvidedPieces
from pytest_qnn.qnn.reference.profiles import Profiles
from pytest_qnn.qnn.reference.sections import Sections
from pytest_qnn.qnn.reference.settings import Environments, Settings
from pytest_qnn.qnn.reference.signals import Signals
from pytest_qnn.qnn.reference.system import ReferenceSystem


class ReferenceBackend(
    ProvidedPieces,
    Profiles,
    Signals,
    Settings,
    Restarts,
    Asynchronous,
    Sections,
    Retrieval,
    Environments,
    InOnePiece,
    Devices,
):
    """A conforming QNN backend in this process: graphs in numpy, QnnMem on memfd-backed rpcmem.

    Codes follow the public headers of API 2.32; where those are silent, libQnnHtp on x86-64.
    """


_SERVED: list[Any] = []
"""What C holds pointers into, until the process ends: its clients may call at any time."""


def serve(library: bytes, kind: str) -> None:
    """Make the reference with the personality that PYTEST_QNN_PERSONALITY names, and hand it to ``library``.

    That is a C library of ours (`pytest_qnn.native`), which foreign clients have loaded as a QNN backend.

    Args:
        library: path of the loaded library that asks.
        kind: ``backend`` or ``system``.

    Raises:
        KeyError: there is no such personality, or no such kind.
        OSError: the library is not loaded.
    """
    made = _KINDS[kind]()
    _SERVED.append(made)
    loaded = ctypes.CDLL(os.fsdecode(library), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    loaded.pytest_qnn_serve.argtypes = (ctypes.c_void_p,)
    loaded.pytest_qnn_serve.restype = None
    loaded.pytest_qnn_serve(ctypes.cast(made.get_providers, ctypes.c_void_p))


def _backend() -> ReferenceBackend:
    return ReferenceBackend(PERSONALITIES[os.environ.get("PYTEST_QNN_PERSONALITY") or "default"])


_KINDS: dict[str, Callable[[], Any]] = {"backend": _backend, "system": ReferenceSystem}
