"""A package of the tests' own, `localpkg`, made from a source tree with a build backend of its own: it needs no index and takes as long as told."""

BACKEND = '''
import os, time, zipfile, hashlib, base64
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    time.sleep(float(open("delay").read()))
    name, info = "localpkg-%(version)s-py3-none-any.whl", "localpkg-%(version)s.dist-info/"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as z:
        z.writestr("localpkg/__init__.py", "V = '%(version)s'\\ndef main(): print('ran', V)\\n")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: localpkg\\nVersion: %(version)s\\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr(info + "entry_points.txt", "[console_scripts]\\nlocalpkg = localpkg:main\\n")
        z.writestr(info + "RECORD", "localpkg/__init__.py,,\\n%%sMETADATA,,\\n%%sWHEEL,,\\n%%sentry_points.txt,,\\n%%sRECORD,,\\n" %% ((info,) * 4))
    return name
'''


def write_source(folder, version="1.0", delay=0):
    """The source tree in a new folder; its build takes `delay` seconds. Gives the requirement."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
                                           '[project]\nname = "localpkg"\nversion = "%s"\n' % version)
    (folder / "backend.py").write_text(BACKEND % {"version": version})
    (folder / "delay").write_text(str(delay))
    return "localpkg @ file://%s" % folder
