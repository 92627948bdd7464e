# Runs a script of uftrace's: reads calls from a pipe and calls the script's functions.
# Arguments: the file descriptors to read calls from and to answer on, then the script.
def drive():
    import importlib.util
    import json
    import os
    import select
    import struct
    import sys
    import traceback

    here = drive.__code__.co_filename

    def flush():
        """Writes what the script has printed. Returns whether nobody reads it, as behind `| head`."""
        poll = select.poll()
        poll.register(1, 0)
        unread = any(flags & select.POLLERR for _, flags in poll.poll(0))
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            unread = True
        if unread:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return unread

    def fail(error):
        # The frames of this file, and those that load the script, stand around all others and explain nothing.
        trace = error.__traceback__
        around = (here, "<frozen importlib")
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(around):
            trace = trace.tb_next
        # The script may have pipes of its own.
        if flush() and isinstance(error, BrokenPipeError):
            return 0
        traceback.print_exception(type(error), error, trace)
        return 1

    def load(path):
        folder, file = os.path.split(os.path.abspath(path))
        name = os.path.splitext(file)[0]
        sys.path[0] = folder
        # No folder of compiled scripts is left behind.
        sys.dont_write_bytecode = True
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None:
            raise ImportError("not a Python file: " + path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def run(calls, answers, script):
        header = calls.readline()
        about = json.loads(header)
        about["cmds"] = tuple(about["cmds"])
        hook = lambda name: getattr(script, "uftrace_" + name, None)
        wanted = [name for name in ("entry", "exit", "event") if hook(name)]
        functions = [str(name) for name in getattr(script, "UFTRACE_FUNCS", None) or []]
        answer = json.dumps({"hooks": wanted, "functions": functions})
        answers.write(answer.encode() + b"\n")
        answers.close()
        if hook("begin"):
            hook("begin")(about)
        entry, leave, event = hook("entry"), hook("exit"), hook("event")
        names = {}
        # The values of the next records, by the record's number among them.
        values = {}
        unpack = struct.Struct("<IIIIQQQ").iter_unpack
        size = struct.Struct("<cII")
        while True:
            head = calls.read(size.size)
            if len(head) < size.size:
                # dioptra ended before all calls were written, and has said why.
                return 1
            kind, number, length = size.unpack(head)
            if kind == b"E":
                break
            data = calls.read(length)
            if len(data) < length:
                return 1
            if kind == b"N":
                names[number] = data.decode("utf-8", "replace")
                continue
            if kind == b"V":
                values[number] = json.loads(data)
                continue
            for at, (what, tid, depth, name, timestamp, address, duration) in enumerate(unpack(data)):
                if what == 0:
                    entry({
                        "tid": tid, "depth": depth, "timestamp": timestamp, "address": address,
                        "name": names[name], **values.get(at, {}),
                    })
                elif what == 1:
                    leave({
                        "tid": tid, "depth": depth, "timestamp": timestamp, "address": address,
                        "name": names[name], "duration": duration, **values.get(at, {}),
                    })
                else:
                    # The duration of an event is the number of its text.
                    event({
                        "tid": tid, "depth": depth, "timestamp": timestamp, "address": address,
                        "name": names[name], "args": names[duration],
                    })
            values.clear()
        if hook("end"):
            hook("end")()
        return 0

    status = 0
    try:
        read, write, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
        sys.argv[:] = sys.argv[3:]
        # Programs that the script starts have no part in this.
        os.set_inheritable(read, False)
        os.set_inheritable(write, False)
        with open(read, "rb", buffering=1 << 18) as calls, open(write, "wb") as answers:
            status = run(calls, answers, load(path))
        flush()
    except KeyboardInterrupt:
        status = 130
    except SystemExit:
        raise
    except BaseException as error:
        status = fail(error)
    sys.exit(status)


drive()
