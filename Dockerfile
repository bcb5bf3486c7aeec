# Image of the command line: `docker build -t rabbitdelay .`, `docker run --rm rabbitdelay --help`.
FROM python:3.12-slim

# Dependencies first, in their own layer, so that a change of the source does not reinstall them.
COPY pyproject.toml /source/
# The gateway needs the extra `http`.
RUN python -c "import tomllib; p = tomllib.load(open('/source/pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['http'], sep='\n')" > /source/requirements.txt \
    && pip install --no-cache-dir -r /source/requirements.txt

COPY README.md LICENSE rabbitdelay_command.py rabbitdelay_pytest.py /source/
COPY rabbitdelay /source/rabbitdelay
RUN pip install --no-cache-dir --no-deps /source && rm -r /source

RUN useradd --create-home rabbitdelay
USER rabbitdelay
WORKDIR /home/rabbitdelay

ENTRYPOINT ["rabbitdelay"]
CMD ["--help"]
